-- one row per stay of the source: why it is left out before its readings are looked at (null: it is read)
-- drawn_stay holds the places in the file that the published permutation drew
select
    icustay.stay_id,
    icustay.subject_id,
    icustay.hadm_id,
    icustay.intime,
    case
        when icustay.los is null then 'los_missing'
        when icustay.los < $min_days then 'los_under_2_days'
        when icustay.intime is null then 'intime_missing'
        when drawn_stay.position is null then 'not_drawn'
    end as reason
from icustay
left join drawn_stay on icustay.position = drawn_stay.position
order by icustay.stay_id
