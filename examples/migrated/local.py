import logging
import os
import random
import subprocess

import psflow as tf

from model import MyEstimator


logging.getLogger().setLevel(logging.INFO)

model_dir = "runs/migrated/"
subprocess.check_call("rm -rf %s" % model_dir, shell=True)

estimator = MyEstimator(model_dir)

batch_size = 1

def train_input_fn():
    def generator():
        for _ in range(10):
            datum = random.random()
            yield "\t".join(map(str, (datum, datum * 0.8 + 1)))

    def parse(line):
        fields = [float(field) for field in line.split("\t")]
        return {"x": fields[0]}, fields[1]

    dataset = tf.Dataset.from_generator(
        generator
    )
    dataset = dataset.map(parse)
    return dataset.batch(batch_size)


def serving_input_fn():
    feature_tensors = {
        "x": tf.placeholder("float64", shape=(None,), name="input_x")
    }
    receiver_tensor = dict(
        input=feature_tensors["x"]
    )
    return tf.estimator.export.ServingInputReceiver(
        feature_tensors, receiver_tensor
    )


def predict_input_fn():
    def generator():
        for _ in range(10):
            datum = random.random()
            yield "\t".join(map(str, (datum,)))

    def parse(line):
        fields = [float(field) for field in line.split("\t")]
        return {"x": fields[0]}

    dataset = tf.Dataset.from_generator(
        generator
    )
    dataset = dataset.map(parse)
    return dataset.batch(batch_size)


estimator.train(train_input_fn)
estimator.evaluate(train_input_fn)
base = os.path.join(model_dir, "test")
result_dir = estimator.export_saved_model(base, serving_input_fn)
print("Result dir: ", result_dir)

for data in estimator.predict(predict_input_fn):
    print(data)
