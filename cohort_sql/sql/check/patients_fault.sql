-- one row: how many patients there are, and how many rows cannot be read or repeat a patient
select
    count(*) as found,
    count_if(as_id(subject_id) is null) as subject_id_unreadable,
    count_if(anchor_age is not null and as_id(anchor_age) is null) as anchor_age_unreadable,
    count_if(anchor_year is not null and as_id(anchor_year) is null) as anchor_year_unreadable,
    count(as_id(subject_id)) - count(distinct as_id(subject_id)) as repeated
from patients
