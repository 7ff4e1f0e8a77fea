-- one row: for each channel with an event threshold, the values below and above which an hour is an event hour
select
    max(below) filter (where channel = 'hr') as hr_below,
    max(above) filter (where channel = 'hr') as hr_above,
    max(below) filter (where channel = 'sbp') as sbp_below,
    max(above) filter (where channel = 'sbp') as sbp_above,
    max(below) filter (where channel = 'rr') as rr_below,
    max(above) filter (where channel = 'rr') as rr_above,
    max(below) filter (where channel = 'spo2') as spo2_below,
    max(above) filter (where channel = 'spo2') as spo2_above,
    max(below) filter (where channel = 'temp') as temp_below,
    max(above) filter (where channel = 'temp') as temp_above
from events
