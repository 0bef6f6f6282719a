from benchmarks.experiments.trials import EPOCHS, PROBLEMS, consistency_trials, epoch_trials
from psflow.ps_runtime.specs.consistency import CONSISTENCIES


def test_all_trials_of_a_problem_compute_and_are_evaluated_after_equal_numbers_of_gradients() -> None:
    for problem in PROBLEMS.values():
        trials = list(consistency_trials(problem))
        assert {trial.num_gradients for trial in trials} == {problem.num_gradients}
        assert problem.num_gradients % problem.gradients_between == 0
        for trial in trials:
            assert problem.gradients_between % trial.gradients_per_update == 0


def test_every_consistency_is_tried_with_each_number_of_replicas_at_both_rates() -> None:
    for problem in PROBLEMS.values():
        tried = {
            (trial.consistency.name, trial.num_replicas, trial.learning_rate, trial.seed)
            for trial in consistency_trials(problem)
        }
        assert tried >= {
            (name, n, rate, seed)
            for name in CONSISTENCIES
            for n in (1, 2, 3)
            for rate in (problem.small_rate, problem.large_rate)
            for seed in problem.seeds
        }
        assert {("sync", n, problem.scaled_rate(n), problem.seeds[0]) for n in (1, 2, 3)} <= tried


def test_no_trial_is_made_twice() -> None:
    keys = [trial.key for problem in PROBLEMS.values() for trial in consistency_trials(problem)]
    assert len(keys) == len(set(keys))


def test_replicas_that_each_read_all_the_data_compute_as_many_times_the_gradients() -> None:
    trials = {trial.num_replicas: trial.num_gradients for trial in epoch_trials()}
    assert trials == {1: 12_000, 2: 24_000, 3: 36_000}
    assert EPOCHS.num_gradients == 20 * 60_000 // EPOCHS.batch_size
