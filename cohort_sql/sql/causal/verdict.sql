-- one row per reason for leaving a reading out (null: usable) and repair it needed (null: none): how many there are
select
    reason,
    repair,
    count(*) as readings
from judged
group by reason, repair
