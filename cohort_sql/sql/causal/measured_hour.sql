-- one row per stay and hour with a usable reading: each channel's mean from the instrument that comes first there
-- `readings` counts the readings that went into the row
select
    stay_id,
    hour,
    arg_min(value, precedence) filter (where channel = 'hr') as hr,
    arg_min(value, precedence) filter (where channel = 'sbp') as sbp,
    arg_min(value, precedence) filter (where channel = 'dbp') as dbp,
    arg_min(value, precedence) filter (where channel = 'rr') as rr,
    arg_min(value, precedence) filter (where channel = 'spo2') as spo2,
    arg_min(value, precedence) filter (where channel = 'temp') as temp,
    coalesce(arg_min(readings, precedence) filter (where channel = 'hr'), 0)
    + coalesce(arg_min(readings, precedence) filter (where channel = 'sbp'), 0)
    + coalesce(arg_min(readings, precedence) filter (where channel = 'dbp'), 0)
    + coalesce(arg_min(readings, precedence) filter (where channel = 'rr'), 0)
    + coalesce(arg_min(readings, precedence) filter (where channel = 'spo2'), 0)
    + coalesce(arg_min(readings, precedence) filter (where channel = 'temp'), 0) as readings
from signal_hour
where not inverted
group by stay_id, hour
