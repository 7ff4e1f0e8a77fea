-- one row per stay used: its bucket and split (alike for all stays of a patient), its grid, and if it fits statistics
-- train takes 70 % of the patients, validation and test 15 % each; where none falls into train, the nearest does
with used as (
    select
        *,
        cast('0x' || left(sha256('bucket:' || subject_id), 15) as bigint) % $buckets as bucket,
        cast('0x' || left(sha256('split:' || $seed || ':' || subject_id), 15) as bigint) / 16.0 ** 15 as draw
    from outcome
    where reason is null
),

divided as (
    select
        *,
        case
            when draw < 0.7 or draw = min(draw) over () then 'train'
            when draw < 0.85 then 'validation'
            else 'test'
        end as split
    from used
)

select
    stay_id,
    subject_id,
    hadm_id,
    cast(bucket as integer) as bucket,
    split,
    intime,
    age_years,
    first_hour,
    end_hour,
    end_hour - first_hour as hours,
    split = 'train' or not $train_only as fits
from divided
order by stay_id
