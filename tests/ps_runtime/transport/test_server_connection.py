from psflow.ps_runtime.transport.server_connection import Spares


def test_memory_is_used_again_and_the_smallest_is_given_up():
    spares = Spares()
    small, medium, large = (spares.take(nbytes) for nbytes in (10, 20, 30))
    for spare in (large, small, medium):
        spares.give(spare)
    assert spares.take(15) is medium
    assert spares.take(15) is large
    assert len(spares.take(10)) == 10
