-- one row per stay and hour with a usable reading: each channel's mean from the instrument that comes first there
select
    stay_id,
    hour,
    max(value) filter (where channel = 'hr') as hr,
    max(value) filter (where channel = 'sbp') as sbp,
    max(value) filter (where channel = 'dbp') as dbp,
    max(value) filter (where channel = 'rr') as rr,
    max(value) filter (where channel = 'spo2') as spo2,
    max(value) filter (where channel = 'temp') as temp
from signal_hour
where not inverted and precedence = first_precedence
group by stay_id, hour
order by stay_id, hour
