-- one row per stay whose length of stay reaches the minimum: its place in the file, in which the draw is published
select position
from icustay
where los >= $min_days
order by position
