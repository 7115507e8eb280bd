"""How much each parameter of a sweep mattered, by Optuna's own evaluator, from the study that came
with the events.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from trainyard import versions

# PED-ANOVA asks what the best tenth of the complete trials have in common.
_FEWEST = 10


def importances(journal: Path) -> tuple[list[tuple[str, float]], str]:
    """Return (parameter, share) pairs, the largest first, and from what they are, or why there are
    none.

    The evaluator is Optuna's default, PED-ANOVA: it needs no scikit-learn, and knows conditional
    parameters.
    """
    if not journal.is_file():
        return (
            [],
            f"It is worked out from {journal.name}, which did not come back from the cluster.",
        )

    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        return [], f"Optuna works it out, and is not installed here: {versions.installing('tune')}"

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
    try:
        (name,) = optuna.study.get_all_study_names(storage)
        study = optuna.load_study(study_name=name, storage=storage)
        count = len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))
        if count < _FEWEST:
            return [], f"It takes {_FEWEST} complete trials; so far there are {count}."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = optuna.importance.get_param_importances(study)
    # Lines that are no journal of Optuna end in whatever its replay stumbles over; the rest of the
    # page is good.
    except Exception as error:
        return [], f"Optuna cannot read {journal.name}: {error!r}"

    return list(
        found.items()
    ), f"PED-ANOVA of {count} complete trials; share of the explained variance."
