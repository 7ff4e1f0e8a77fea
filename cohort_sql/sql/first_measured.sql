-- one row per stay: the first measured mean of each channel, where a preset carries it back to the hours before it
select
    stay_id,
    case when $backward then arg_min(hr, hour) end as hr,
    case when $backward then arg_min(sbp, hour) end as sbp,
    case when $backward then arg_min(dbp, hour) end as dbp,
    case when $backward then arg_min(rr, hour) end as rr,
    case when $backward then arg_min(spo2, hour) end as spo2,
    case when $backward then arg_min(temp, hour) end as temp
from measured_hour
group by stay_id
order by stay_id
