-- one row per kept stay and hour with a reading: the mean of each channel, null where it was not charted
select
    measured.stay_id,
    measured.hour,
    measured.hr,
    measured.sbp,
    measured.dbp,
    measured.rr,
    measured.spo2,
    measured.temp
from reading_hour as measured
inner join grid on measured.stay_id = grid.stay_id
where measured.reason is null and grid.kept
order by measured.stay_id, measured.hour
