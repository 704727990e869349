"""Learn to detect a source from On and Off events only, by maximising the significance of detection.

>>> import excess
>>> print(excess.OnOffCounts(n_on=20, n_off=25, alpha=0.2))
On 20, Off 25, alpha 0.2: excess 15.0 +- 4.6, 4.4 sigma

Overview of the main classes and functions:

- learn from events with On/Off labels: `OnOffForestClassifier`, `OnOffTreeClassifier` for readable cuts,
  `OnOffKMeansEnsembleClassifier` for clusters;
- significance of counts: `OnOffCounts`, `li_ma_significance`;
- cuts on existing scores: `significance_threshold`, `significance_curve`;
- scikit-learn classifiers trained on On and Off events: `SignificanceThresholdClassifier`;
- validated detections: `cross_val_detect`, and `null_test` in regions without a source;
- threshold and calibration per energy bin: `OnOffBinnedClassifier`;
- third-party classifiers: `OnnxClassifier`, and `OnOffHybridClassifier` to weight them;
- simulated events: `simulation_agreement` compares their features with observed events;
- selection of clusters or leaves: `assign_cells`;
- metrics of predictions: `significance_score`, `corrected_f1_score`.
"""

import lazy_loader

from excess._utils.version import __version__ as __version__

# names are imported on first use; see ``__init__.pyi``
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
