import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.exceptions.JedisException;

/** The usual delay queue on Redis: ZADD with the due time in microseconds as score, and a poller whose Lua script takes the due items. */
final class SortedSet {
    private static final byte[] KEY = "delayed".getBytes(StandardCharsets.US_ASCII);
    private static final int AT_ONCE = 1000;
    private static final byte[] TAKE = String.join("\n",
        "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, " + AT_ONCE + ")",
        "if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end",
        "return due").getBytes(StandardCharsets.US_ASCII);

    private SortedSet() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        int rate = options.number("rate");
        int count = rate * options.number("seconds");
        Samples samples = new Samples(count, count + count / 2);
        AtomicBoolean done = new AtomicBoolean();
        Thread poller = new Thread(() -> poll(options.number("port"), samples, done), "poller");
        poller.start();
        send(options, rate, count, samples);
        Options.say("sent");
        samples.awaitAll(options);
        done.set(true);
        poller.join();
        samples.write(options.directory());
        Options.say("done");
    }

    private static void send(Options options, int rate, int count, Samples samples) {
        Payload payload = new Payload(options.number("size"));
        long delayMs = options.number("delay-ms");
        List<Integer> queued = new ArrayList<>();
        try (Jedis jedis = new Jedis("127.0.0.1", options.number("port"), 60_000)) {
            Pipeline pipeline = jedis.pipelined();
            Pace.keep(rate, count, n -> {
                long nowUs = Samples.nowUs();
                samples.sent(n, nowUs);
                pipeline.zadd(KEY, nowUs + delayMs * 1000, payload.value(n));
                queued.add(n);
            }, () -> {
                if (!queued.isEmpty()) {
                    pipeline.sync();
                    long nowUs = Samples.nowUs();
                    queued.forEach(n -> samples.acked(n, nowUs, Samples.UNKNOWN));
                    queued.clear();
                }
            });
        }
    }

    private static void poll(int port, Samples samples, AtomicBoolean done) {
        while (!done.get()) {
            try (Jedis jedis = new Jedis("127.0.0.1", port, 60_000)) {
                poll(jedis, samples, done);
            } catch (JedisException e) { // the server is down, or still loads its file
                LockSupport.parkNanos(10_000_000);
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static void poll(Jedis jedis, Samples samples, AtomicBoolean done) {
        byte[] script = jedis.scriptLoad(TAKE);
        while (!done.get()) {
            byte[] now = Long.toString(Samples.nowUs()).getBytes(StandardCharsets.US_ASCII);
            List<byte[]> due = (List<byte[]>) jedis.evalsha(script, 1, KEY, now);
            long atUs = Samples.nowUs();
            due.forEach(value -> samples.received(Payload.number(value), 0, atUs, Samples.UNKNOWN));
            if (due.isEmpty()) {
                LockSupport.parkNanos(1_000_000);
            }
        }
    }
}
