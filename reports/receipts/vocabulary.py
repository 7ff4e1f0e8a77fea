"""The words a receipt may use, each with its meaning in plain words: what is not listed here cannot be said in one.

A closed vocabulary is what keeps digests, wards, buckets and counts of a patient's rows out of receipts.
"""

from __future__ import annotations

OUTCOMES = {
    "deleted": "The run held the patient or stay; what it held was removed as listed below.",
    "not held": "The run did not hold the patient or stay; nothing had to be removed, and nothing was changed.",
}
STORES = {
    "cohort": "the table of stays and the cohort's statistics",
    "tokens": "the hourly vitals",
    "retained": "the lists of hours that each policy keeps",
    "counts": "the tables of counts per stay",
    "results": "the result tables",
    "report": "the HTML report",
    "features": "the shared feature maps",
    "svdd": "the support-vector memories of single stays",
    "vla": "the least-squares memories of single stays",
    "nc01": "the protected-read memories of single stays",
    "wards": "the support-vector memories that patients share",
    "models": "the prediction models",
    "former generation": "the former state of the run on this disk",
    "orchestrator storage": "what the orchestrator of this product had stored about the run",
    "temporary files": "temporary files of the database engine",
    "inbox": "the request with its ids",
}
METHODS = {
    "rows removed": "the rows of the patient or stay were removed",
    "maintained deletion": "the tokens were deleted from the shared memory, which is now as if it had never held them",
    "state dropped": "the memories of the stays were removed whole, all others left untouched",
    "replay": "the memory was built again from the tokens that stay",
    "computed again": "everything was computed again from what stays",
    "rendered again": "the page was rendered again from what stays",
    "trained again": "the models were trained again on what stays",
    "file removed": "the files were removed",
    "unchanged": "nothing of the patient is in it; it was left as it was",
}
MEMORIES = ("wards", "svdd", "vla", "nc01")
FAILURES = {
    "refused": "the memory refused the deletion",
    "not converged": "no path reached a state that passes its checks",
    "above tolerance": "the certificate was above the tolerance",
    "interrupted": "the work was interrupted and taken up again",
}
REFERENCES = {
    "retained-key refit at the same C": "a fit from nothing to the tokens that stay, with the same cap C",
    "a build that never saw the tokens": "a memory that was never given the tokens",
    "replay of the retained tokens": "a memory that was given the tokens that stay, in order",
}
ARITHMETIC = {
    "maintained": "maintained in place, solved again where its checks ask for it",
    "none": "no arithmetic: whole states were removed",
    "replay": "float64 in the order of the tokens",
    "integer ledger": "exact integer sums, subtracted",
}
CHECKS = {
    "tables": "No id column or list of any table of the run holds a deleted subject or stay.",
    "memory states": "No memory state of the run holds a token or a key name of a deleted stay.",
    "results": "All result tables were computed again from tables that hold no deleted stay.",
    "report": "The report was rendered again from those result tables.",
    "suppression": "The site's suppression list holds the patient or stay, so later builds leave them out.",
    "closed world": "The run holds no file of a kind that is not in the site's inventory.",
    "former generation": "The former state of the run is gone from its place on the disk.",
    "state manifest": "Every file of the run has the digest that the state manifest lists.",
}
ENVIRONMENT = {
    "icu-stream-memory": "this program",
    "python": "the language",
    "duckdb": "the database engine of the cohort",
    "numpy": "arrays",
    "polars": "tables",
    "prefect": "the orchestrator",
    "pyarrow": "Parquet files",
    "scikit-learn": "statistics",
    "scipy": "linear algebra",
    "torch": "batched memories",
}
NOT_COVERED = {
    "source files": "The source files, which belong to the data provider, are not changed.",
    "copies elsewhere": "Backups and copies outside the site's registered runs cannot be seen from here.",
    "media remanence": "What a disk keeps of overwritten or removed blocks; overwriting is neither done nor claimed.",
    "cohort statistics": "Medians, means and spreads of the vitals, features of the memories drawn from them, and the "
    "attrition and coverage counts of the cohort flow were computed with the patient among many.",
    "prediction models": "Prediction models that were trained before the deletion were not trained again.",
    "lost runs": "A registered run that was not found: its directory was not where the site had registered it.",
    "other runs": "Other registered runs of the site were not treated under this receipt.",
    "orchestrator logs": "Logs of an orchestrator that other people operate; this product writes no id into them.",
    "annex": "An annex with the key of the commitment is kept, for its owner alone, until its destruction date.",
}
