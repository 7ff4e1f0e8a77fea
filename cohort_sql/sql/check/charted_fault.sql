-- one row: how many ingested rows have a column that cannot be read, by the first such column
select
    count_if(unreadable = 'itemid') as itemid_unreadable,
    count_if(unreadable = 'stay_id') as stay_id_unreadable,
    count_if(unreadable = 'charttime') as charttime_unreadable,
    count_if(unreadable = 'valuenum') as valuenum_unreadable
from charted
