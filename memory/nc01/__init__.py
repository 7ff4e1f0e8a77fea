"""Protected-read banks: a bounded matrix memory whose register of reads later tokens do not move."""

from memory.nc01.bank import Decision, NC01Bank, Run
from memory.nc01.checks import NC01Refused
from memory.nc01.limits import CP64, ICU
from memory.nc01.offers import EventOffers, NoveltyOffers, OfferPolicy, RandomOffers, ResidualOffers
from memory.nc01.replay import Replay, Stream, delete_by_replay

__all__ = [
    "CP64",
    "ICU",
    "Decision",
    "EventOffers",
    "NC01Bank",
    "NC01Refused",
    "NoveltyOffers",
    "OfferPolicy",
    "RandomOffers",
    "Replay",
    "ResidualOffers",
    "Run",
    "Stream",
    "delete_by_replay",
]
