import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;

/** Sends at a steady rate. */
final class Pace {
    private Pace() {}

    /** Calls send(0), send(1) … at a rate per second. After a pause, the calls that it held up follow at once. */
    static void keep(int perSecond, int count, IntConsumer send) {
        keep(perSecond, count, send, () -> {});
    }

    /** Does the same, and calls afterBatch after the calls that were made at once: a batch every half millisecond. */
    static void keep(int perSecond, int count, IntConsumer send, Runnable afterBatch) {
        long began = System.nanoTime();
        int next = 0;
        while (next < count) {
            long turn = Math.min(count, (System.nanoTime() - began) * perSecond / 1_000_000_000L + 1);
            while (next < turn) {
                send.accept(next++);
            }
            afterBatch.run();
            LockSupport.parkNanos(500_000);
        }
    }
}
