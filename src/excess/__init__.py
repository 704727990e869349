"""Learn to detect a source from On and Off events alone, by maximising the significance of detection.

>>> import excess
>>> print(excess.OnOffCounts(n_on=20, n_off=25, alpha=0.2))
On 20, Off 25, alpha 0.2: excess 15.0 +- 4.6, 4.4 sigma

What to use when:

- events with On/Off labels to learn from: `OnOffForestClassifier`, `OnOffTreeClassifier` to read the cuts,
  `OnOffKMeansEnsembleClassifier` to let clusters decide;
- counts at hand: `OnOffCounts`, `li_ma_significance`;
- scores at hand: `significance_threshold`, `significance_curve`;
- a scikit-learn classifier to train on On and Off events: `SignificanceThresholdClassifier`;
- a detection to be sure of: `cross_val_detect`, and `null_test` for where there is no source;
- a threshold and a calibration for each bin of energy: `OnOffBinnedClassifier`;
- a classifier of others: `OnnxClassifier`, and `OnOffHybridClassifier` to learn how far to trust it;
- simulated events to trust: `simulation_agreement` says in which features they differ from observed ones;
- clusters or leaves to label: `assign_cells`;
- metrics of predictions: `significance_score`, `corrected_f1_score`.
"""

import lazy_loader

from excess._utils.version import __version__ as __version__

# names are imported when they are first used; ``__init__.pyi`` says where from
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
