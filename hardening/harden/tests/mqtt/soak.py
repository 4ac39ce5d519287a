"""A checking soak of an MQTT broker with a client library that others wrote (paho-mqtt): publishers and subscribers at
all three qualities of service, retained messages, a restart with persistence in the middle; every payload is checked.

    soak.py PROGRAM PORT MESSAGES [SEED]

Each message carries its topic's counter and a digest of both, so that a payload that is wrong, lost, doubled where it
must not be, out of order, or on another topic is told by the subscriber alone. Exits 0 and prints one line of figures.
"""
import collections, hashlib, os, random, subprocess, sys, tempfile, threading, time

import paho.mqtt.client as mqtt

PUBLISHERS, SUBSCRIBERS, TOPICS, PATIENCE_S = 4, 4, 6, 60
BROKERS = []
WINDOW = 200  # QoS 0 messages that nobody has seen yet; a broker drops more than 1,000


def payload(topic, number, size):
    """`number`, then bytes that only this topic and number have."""
    head = b"%012d " % number
    body = hashlib.shake_128(topic.encode() + head).digest(size)
    return head + body


def check(topic, data):
    number = int(data[:12])
    assert data == payload(topic, number, len(data) - 13), f"wrong payload on {topic}: {data[:40]!r}"
    return number


class Broker:
    def __init__(self, program, port, folder):
        self.program, self.port, self.folder = program, port, folder
        self.config = os.path.join(folder, "conf")
        with open(self.config, "w") as file:
            file.write(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\nuser root\n"
                       f"persistence_location {folder}/\nlog_dest stderr\nlog_type error\nlog_type warning\n"
                       f"autosave_interval 2\nsys_interval 1\nmax_queued_messages 100000\n")

    def start(self):
        self.process = subprocess.Popen([self.program, "-c", self.config])
        BROKERS.append(self.process)
        deadline = time.time() + PATIENCE_S
        while True:
            try:
                probe = client("probe")
                probe.connect("127.0.0.1", self.port)
                probe.disconnect()
                return
            except OSError:
                assert self.process.poll() is None, f"the broker has ended with {self.process.returncode}"
                assert time.time() < deadline, "the broker does not listen"
                time.sleep(0.05)

    def stop(self):
        assert self.process.poll() is None, f"the broker has ended with {self.process.returncode}"
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, f"the broker has ended with {self.process.returncode}"


def client(name, **options):
    return mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, **options)


class Subscriber:
    """Subscribed to all topics; at QoS 1 and 2 in a session that outlives connections."""

    def __init__(self, number, port):
        self.port, self.qos = port, number % 3
        self.seen = collections.defaultdict(list)
        self.highest = collections.Counter()  # number of the highest message, plus one
        self.failure = None
        self.lock = threading.Lock()
        self.ready = threading.Event()
        self.client = client(f"sub{number}", clean_session=self.qos == 0)
        self.client.on_message = self.on_message
        self.client.on_subscribe = lambda *_: self.ready.set()

    def on_message(self, _client, _data, message):
        try:
            number = check(message.topic, message.payload)
            with self.lock:
                self.seen[message.topic].append(number)
                self.highest[message.topic] = max(self.highest[message.topic], number + 1)
        except Exception as error:  # told by wait_for
            self.failure = error

    def connect(self, subscribes):
        self.ready.clear()
        self.client.connect("127.0.0.1", self.port)
        self.client.loop_start()
        if subscribes:
            self.client.subscribe([("t/#", self.qos), ("r/#", self.qos)])
            assert self.ready.wait(PATIENCE_S), "no SUBACK"

    def disconnect(self):
        self.client.disconnect()
        self.client.loop_stop()

    def last(self, topic):
        with self.lock:
            return self.highest[topic] - 1

    def wait_for(self, sent):
        """Until all messages are here: order is not kept at QoS 1 and 2."""
        deadline = time.time() + PATIENCE_S
        while any(len(set(self.seen[topic])) < count for topic, count in sent.items()):
            if self.failure:
                raise self.failure
            assert time.time() < deadline, f"QoS {self.qos}: {[(t, len(self.seen[t]), n) for t, n in sent.items()]}"
            time.sleep(0.02)

    def verify(self, sent, gaps):
        """Everything, once but at QoS 1, in order at QoS 0: paho's own queue may change the order of the others.
        `gaps`: what came while a session was away may lack."""
        assert self.failure is None, self.failure
        for topic, count in sent.items():
            quality = min(self.qos, int(topic[-1]))
            numbers = self.seen[topic]
            assert quality > 0 or numbers == sorted(numbers), f"out of order at QoS 0 on {topic}"
            assert quality == 1 or len(numbers) == len(set(numbers)), f"doubled at QoS {quality} on {topic}"
            if not gaps:
                lost = set(range(count)) - set(numbers)
                assert not lost, f"lost at QoS {quality} on {topic}: {sorted(lost)[:9]} of {count}"


def publish(publisher, port, messages, seed, sent, subscribers):
    """Topics t/<publisher>/<topic>/<qos>; the last part is the QoS that it is published with."""
    rng = random.Random(seed * 100 + publisher)
    connection = client(f"pub{publisher}")
    connection.max_inflight_messages_set(20)
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    waiting = collections.deque()
    for _ in range(messages):
        qos = rng.randrange(3)
        topic = f"t/{publisher}/{rng.randrange(TOPICS)}/{qos}"
        size = rng.choice([0, 10, 100, 100, 1000, 5000]) if rng.random() < 0.99 else 200_000
        data = payload(topic, sent[topic], size)
        sent[topic] += 1
        waiting.append((topic, sent[topic], connection.publish(topic, data, qos=qos)))
        if len(waiting) > WINDOW // PUBLISHERS:
            topic, count, info = waiting.popleft()
            info.wait_for_publish(PATIENCE_S)
            deadline = time.time() + PATIENCE_S
            while any(s.last(topic) < count - 1 for s in subscribers if s.client.is_connected()):
                assert time.time() < deadline, f"{topic} does not arrive"
                time.sleep(0.002)
    for _, _, info in waiting:
        info.wait_for_publish(PATIENCE_S)
    connection.disconnect()
    connection.loop_stop()


def publish_all(port, messages, seed, sent, subscribers):
    failures = []

    def run(number):
        try:
            publish(number, port, messages // PUBLISHERS, seed, sent, subscribers)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(PUBLISHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def retain(port, count, generation):
    """Retained messages, and their checks by a client that comes later."""
    connection = client("retainer")
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    for number in range(count):
        topic = f"k/{number}"
        info = connection.publish(topic, payload(topic, generation, 50), qos=1, retain=True)
        info.wait_for_publish(PATIENCE_S)
    connection.disconnect()
    connection.loop_stop()


def retained_are(port, count, generation):
    found = {}
    connection = client("reader")
    connection.on_message = lambda _c, _d, message: found.update({message.topic: (message.payload, message.retain)})
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    connection.subscribe("k/#", 1)
    deadline = time.time() + PATIENCE_S
    while len(found) < count and time.time() < deadline:
        time.sleep(0.02)
    connection.disconnect()
    connection.loop_stop()
    want = {f"k/{n}": (payload(f"k/{n}", generation, 50), True) for n in range(count)}
    assert found == want, f"{len(found)} of {count} retained messages"


def main():
    """Ends the broker whatever happens."""
    try:
        soak()
    finally:
        for process in BROKERS:
            if process.poll() is None:
                process.kill()


def soak():
    program, port, messages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    began = time.time()
    sent = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(program, port, folder)
        broker.start()
        subscribers = [Subscriber(number, port) for number in range(SUBSCRIBERS)]
        for subscriber in subscribers:
            subscriber.connect(subscribes=True)
        publish_all(port, messages // 2, seed, sent, subscribers)
        for subscriber in subscribers:
            subscriber.wait_for(sent)
            subscriber.verify(sent, gaps=False)
        # What comes now is kept for sessions at QoS 1 and 2, and goes through the file.
        for subscriber in subscribers:
            subscriber.disconnect()
        publish_all(port, messages // 8, seed + 1, sent, [])
        broker.stop()
        broker.start()
        for subscriber in subscribers:
            subscriber.connect(subscribes=subscriber.qos == 0)
        kept = {topic: count for topic, count in sent.items() if topic[-1] != "0"}
        for subscriber in subscribers:
            if subscriber.qos:
                subscriber.wait_for(kept)
        publish_all(port, messages - messages // 2 - messages // 8, seed + 2, sent, subscribers)
        for subscriber in subscribers:
            if subscriber.qos:
                subscriber.wait_for({topic: sent[topic] for topic in kept})
                subscriber.verify({topic: sent[topic] for topic in kept}, gaps=False)
            subscriber.verify(sent, gaps=True)
        # Behind the last messages there is nothing: what is at QoS 0 came before this.
        for subscriber in subscribers:
            subscriber.disconnect()
        retain(port, 300, 2)
        retained_are(port, 300, 2)
        broker.stop()
        broker.start()
        retained_are(port, 300, 2)
        broker.stop()
    received = sum(len(numbers) for subscriber in subscribers for numbers in subscriber.seen.values())
    print(f"{sum(sent.values())} published, {received} received and checked, {time.time() - began:.0f} s")


main()
