-- one row per charted item that a preset reads: channel, conversion, range as charted, and the signal it belongs to
-- a signal is one channel of one instrument, named by its lowest item; two items in two units know each other's unit
with preset_item as (
    select
        *,
        min(itemid) over (partition by channel, precedence) as signal
    from vitals
    where paper or not $paper_only
)

select
    item.*,
    other.unit || '_under_' || item.unit as repair,
    other.subtract as other_subtract,
    other.multiply as other_multiply,
    other.divide as other_divide,
    other.low as other_low,
    other.high as other_high
from preset_item as item
left join preset_item as other on item.signal = other.signal and item.unit <> other.unit
order by item.itemid
