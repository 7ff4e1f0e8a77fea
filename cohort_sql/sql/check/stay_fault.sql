-- one row: how many stays and patients icustays holds, and how many stays show each fault
with neighbour as (
    select
        *,
        max(outtime) over (
            partition by subject_id order by intime, stay_id
            rows between unbounded preceding and 1 preceding
        ) as earlier_end
    from icustay
)

select
    count(*) as stays,
    count(distinct subject_id) as patients,
    count_if(unreadable = 'subject_id') as subject_id_unreadable,
    count_if(unreadable = 'hadm_id') as hadm_id_unreadable,
    count_if(unreadable = 'stay_id') as stay_id_unreadable,
    count_if(unreadable = 'intime') as intime_unreadable,
    count_if(unreadable = 'outtime') as outtime_unreadable,
    count_if(unreadable = 'los') as los_unreadable,
    count(*) - count(distinct stay_id) as repeated,
    count_if(intime is null) as no_intime,
    count_if(outtime is null) as no_outtime,
    count_if(outtime <= intime) as outtime_not_after_intime,
    count_if(los is null) as no_los,
    count_if(outtime > intime and abs(los * 24 - date_diff('second', intime, outtime) / 3600.0) >= 1) as los_disagrees,
    count_if(intime < earlier_end and outtime > intime) as overlapping
from neighbour
