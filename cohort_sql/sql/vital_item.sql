-- one row per charted item that a preset reads: its channel, instrument, conversion and plausible range as charted
select *
from vitals
where paper or not $paper_only
order by itemid
