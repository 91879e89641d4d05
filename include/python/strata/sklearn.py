# SPDX-License-Identifier: Apache-2.0
"""An estimator for the pipelines, searches and scores of scikit-learn: from strata.sklearn import StrataClassifier."""
import numpy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from . import callbacks, layers, optimizers
from .model import Sequential


class StrataClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of dense layers, which standardises the features in double precision and is trained with Adam.

    hidden: the units of all layers but the last one. model: a function of (n_features, n_classes) that returns other
    layers. device: a device's id, such as "opencl:0"; None: the best one. For a few thousand examples the host is the
    fastest device."""

    def __init__(self, hidden=(100,), epochs=200, batch_size=32, learning_rate=1e-3, l2=1e-4, patience=10, model=None,
                 device="host", random_state=0):
        self.hidden, self.epochs, self.batch_size, self.learning_rate, self.l2 = hidden, epochs, batch_size, learning_rate, l2
        self.patience, self.model, self.device, self.random_state = patience, model, device, random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y, dtype=numpy.float64)
        check_classification_targets(y)
        self.classes_, labels = numpy.unique(y, return_inverse=True)
        self.mean_, self.scale_ = X.mean(0), X.std(0)
        # A column is constant if its deviation is only rounding; the features may be in any unit.
        self.scale_[self.scale_ <= 1e-12 * abs(self.mean_)] = 1
        made = self.model(X.shape[1], len(self.classes_)) if self.model else \
            [layers.dense(u, activation="relu", kernel_l2=self.l2) for u in self.hidden] + \
            [layers.dense(max(2, len(self.classes_)), kernel_l2=self.l2)]
        seed = self.random_state if isinstance(self.random_state, (int, numpy.integer)) else \
            numpy.random.default_rng().integers(2**31) if self.random_state is None else self.random_state.randint(2**31 - 1)
        self.model_ = Sequential(made, X.shape[1])
        self.model_.compile(optimizers.Adam(self.learning_rate), device=self.device, seed=int(seed))
        stop = callbacks.EarlyStopping("loss", 1e-4, self.patience)
        history = self.model_.fit(self._standard(X), labels.astype(numpy.int32), epochs=self.epochs,
                                  batch_size=min(self.batch_size, len(X)), seed=int(seed), verbose=0, callbacks=[stop])
        self.n_iter_, self.loss_curve_ = len(history.epoch), history.history["loss"]
        return self

    def _standard(self, X):
        return ((X - self.mean_) / self.scale_).astype(numpy.float32)

    def predict_proba(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, dtype=numpy.float64, reset=False)
        return self.model_.predict(self._standard(X))[:, :len(self.classes_)].astype(numpy.float64)

    def predict(self, X):
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]
