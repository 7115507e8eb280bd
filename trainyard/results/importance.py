"""The importance of a sweep's parameters, by Optuna from the study."""

from __future__ import annotations

import warnings
from pathlib import Path

from trainyard import versions

# PED-ANOVA needs at least one trial in the best tenth of the complete trials.
_FEWEST = 10


def importances(journal: Path) -> tuple[list[tuple[str, float]], str]:
    """Return (parameter, share) pairs, the largest first, and a remark.

    The remark names the pairs' source. Without pairs, the remark says why there
    are none. The evaluator is PED-ANOVA, Optuna's default: it needs no
    scikit-learn, and supports conditional parameters.
    """
    if not journal.is_file():
        remark = f"This needs {journal.name}, which was not fetched from the cluster."
        return [], remark

    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        return [], f"This needs Optuna, which is not installed here: {versions.installing('tune')}"

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
    try:
        (name,) = optuna.study.get_all_study_names(storage)
        study = optuna.load_study(study_name=name, storage=storage)
        count = len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))
        if count < _FEWEST:
            return [], f"This needs {_FEWEST} complete trials; so far there are {count}."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shares = optuna.importance.get_param_importances(study)
    # Optuna may raise any error for a malformed journal, and the page must be written in any case.
    except Exception as error:
        return [], f"Optuna cannot read {journal.name}: {error!r}"

    remark = f"PED-ANOVA of {count} complete trials; share of the explained variance."
    return list(shares.items()), remark
