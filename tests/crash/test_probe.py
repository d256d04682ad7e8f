import time
from tests.crash.tap import Moment
def test_probe(world):
    w = world("probe")
    for i in range(6):
        w = world(f"probe{i}")
        t=time.time()
        w.create({"script":[{"events":[{"type":"text","text":"hi"},{"type":"usage","mode":"total","input":3,"output":2},{"type":"stop","reason":"end"}]}]})
        t1=time.time()
        w.settle()
        t2=time.time()
        print(w.tap.calls, t1-t, t2-t1)
    t=time.time(); w.sweep(); print("sweep", time.time()-t)
    for e in w.events(): print(e["type"], e.get("attempt"), e["data"])
    w = world("dead")
    w.tap.at(4, Moment.AFTER, w.tap.die)
    t=time.time()
    w.create({"script":[{"events":[{"type":"text","text":"hi"},{"type":"stop","reason":"end"}]}]*3})
    w.settle(); w.redeliver_all()
    print(time.time()-t, w.tap.calls, w.sweeps, w.deaths, w.tap.after_death)
    for e in w.events(): print(e["type"], e.get("attempt"), e["data"])
