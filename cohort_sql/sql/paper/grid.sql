-- one row per stay with a usable reading: the hours from its first to its last reading, kept when there are enough
select
    stay_id,
    min(hour) as first_hour,
    max(hour) + 1 as end_hour,
    max(hour) - min(hour) + 1 as hours,
    max(hour) - min(hour) + 1 >= $min_hours as kept,
    sum(readings) as readings
from reading_hour
where reason is null
group by stay_id
order by stay_id
