-- one row per fate of the usable readings of a pass: how many were copies, inverted, and sound
select
    'identical_copy' as fate,
    sum(copies) as readings
from signal_hour
union all
select
    'systolic_below_diastolic' as fate,
    sum(readings) as readings
from signal_hour
where inverted
union all
select
    'sound' as fate,
    sum(readings) as readings
from signal_hour
where not inverted
