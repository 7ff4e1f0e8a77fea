-- one row per stay-hour: each channel carried forward within its limit, else back where allowed, else the typical value
-- a run is expanded in blocks of 4,096 hours, so that a row charted years late costs time and not memory
with block as (
    select
        *,
        unnest(range(0, span, 4096)) as block_start
    from carried
),

each_hour as (
    select
        *,
        hour + unnest(range(block_start, least(block_start + 4096, span))) as at_hour
    from block
),

aged as (
    select
        each_hour.*,
        case
            when carry_limit.hr is null or each_hour.at_hour - each_hour.hr_last.hour <= carry_limit.hr
                then each_hour.at_hour - each_hour.hr_last.hour
        end as hr_age,
        case
            when carry_limit.sbp is null or each_hour.at_hour - each_hour.sbp_last.hour <= carry_limit.sbp
                then each_hour.at_hour - each_hour.sbp_last.hour
        end as sbp_age,
        case
            when carry_limit.dbp is null or each_hour.at_hour - each_hour.dbp_last.hour <= carry_limit.dbp
                then each_hour.at_hour - each_hour.dbp_last.hour
        end as dbp_age,
        case
            when carry_limit.rr is null or each_hour.at_hour - each_hour.rr_last.hour <= carry_limit.rr
                then each_hour.at_hour - each_hour.rr_last.hour
        end as rr_age,
        case
            when carry_limit.spo2 is null or each_hour.at_hour - each_hour.spo2_last.hour <= carry_limit.spo2
                then each_hour.at_hour - each_hour.spo2_last.hour
        end as spo2_age,
        case
            when carry_limit.temp is null or each_hour.at_hour - each_hour.temp_last.hour <= carry_limit.temp
                then each_hour.at_hour - each_hour.temp_last.hour
        end as temp_age
    from each_hour
    cross join carry_limit
),

valued as (
    select
        aged.bucket,
        aged.stay_id,
        cast(aged.at_hour as integer) as hour,
        coalesce(
            case when aged.hr_age is not null then aged.hr_last.value end, first_measured.hr, typical.hr
        ) as hr,
        coalesce(
            case when aged.sbp_age is not null then aged.sbp_last.value end, first_measured.sbp, typical.sbp
        ) as sbp,
        coalesce(
            case when aged.dbp_age is not null then aged.dbp_last.value end, first_measured.dbp, typical.dbp
        ) as dbp,
        coalesce(
            case when aged.rr_age is not null then aged.rr_last.value end, first_measured.rr, typical.rr
        ) as rr,
        coalesce(
            case when aged.spo2_age is not null then aged.spo2_last.value end, first_measured.spo2, typical.spo2
        ) as spo2,
        coalesce(
            case when aged.temp_age is not null then aged.temp_last.value end, first_measured.temp, typical.temp
        ) as temp,
        coalesce(aged.hr_age = 0, false) as hr_measured,
        coalesce(aged.sbp_age = 0, false) as sbp_measured,
        coalesce(aged.dbp_age = 0, false) as dbp_measured,
        coalesce(aged.rr_age = 0, false) as rr_measured,
        coalesce(aged.spo2_age = 0, false) as spo2_measured,
        coalesce(aged.temp_age = 0, false) as temp_measured,
        cast(aged.hr_age as integer) as hr_age,
        cast(aged.sbp_age as integer) as sbp_age,
        cast(aged.dbp_age as integer) as dbp_age,
        cast(aged.rr_age as integer) as rr_age,
        cast(aged.spo2_age as integer) as spo2_age,
        cast(aged.temp_age as integer) as temp_age
    from aged
    inner join first_measured on aged.stay_id = first_measured.stay_id
    cross join typical
)

select
    valued.*,
    coalesce(valued.hr < event_limit.hr_below, false)
    or coalesce(valued.hr > event_limit.hr_above, false) as hr_event,
    coalesce(valued.sbp < event_limit.sbp_below, false)
    or coalesce(valued.sbp > event_limit.sbp_above, false) as sbp_event,
    coalesce(valued.rr < event_limit.rr_below, false)
    or coalesce(valued.rr > event_limit.rr_above, false) as rr_event,
    coalesce(valued.spo2 < event_limit.spo2_below, false)
    or coalesce(valued.spo2 > event_limit.spo2_above, false) as spo2_event,
    coalesce(valued.temp < event_limit.temp_below, false)
    or coalesce(valued.temp > event_limit.temp_above, false) as temp_event
from valued
cross join event_limit
