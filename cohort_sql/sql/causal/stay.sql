-- one row per stay of the source: when it ends, the age at intime, and why it is left out before its readings are read
-- adults only: first patients who are minors in all their stays, then single stays; a draw takes whole patients in turn
with dated as (
    select
        icustay.stay_id,
        icustay.subject_id,
        icustay.hadm_id,
        icustay.intime,
        icustay.outtime,
        as_time(admissions.deathtime) as deathtime,
        least(icustay.outtime, as_time(admissions.deathtime)) as end_time,
        as_id(patients.anchor_age) + year(icustay.intime) - as_id(patients.anchor_year) as age_years
    from icustay
    left join patients on icustay.subject_id = as_id(patients.subject_id)
    left join admissions on icustay.hadm_id = as_id(admissions.hadm_id)
),

judged as (
    select
        *,
        case
            when $ages_known and max(age_years) over (partition by subject_id) < $adult_years then 'patient_minor'
            when $ages_known and age_years < $adult_years then 'stay_minor'
            when intime is null then 'intime_missing'
            when $ages_known and age_years is null then 'age_unknown'
            when outtime is null then 'outtime_missing'
            when outtime <= intime then 'outtime_not_after_intime'
            when deathtime <= intime then 'death_not_after_intime'
        end as reason
    from dated
),

ranked as (
    select
        *,
        row_number() over (
            partition by reason is null
            order by sha256('draw:' || $seed || ':' || subject_id), stay_id
        ) as place
    from judged
)

select
    stay_id,
    subject_id,
    hadm_id,
    intime,
    outtime,
    end_time,
    age_years,
    case when reason is null and place > $stays then 'not_drawn' else reason end as reason
from ranked
order by stay_id
