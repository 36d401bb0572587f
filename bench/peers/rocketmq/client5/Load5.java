import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Puts a load on a proxy, whichever it is, and prints one line of JSON.
 *
 * <p>Load5 WORK NAME=VALUE... where WORK is send, pass or travel. grpc_load.py does the same in Python.
 */
public final class Load5 {
  private static final ClientServiceProvider SERVICE = ClientServiceProvider.loadService();
  private static final long SECOND = 1_000_000_000L;
  private static final int LAST_SECONDS = 30;
  // RocketMQ's proxy refuses receives that wait for less.
  private static final Duration AWAIT = Duration.ofSeconds(5);

  private final Map<String, String> given = new HashMap<>();
  private final Set<String> complaints = ConcurrentHashMap.newKeySet();
  private final ConcurrentLinkedQueue<Long> times = new ConcurrentLinkedQueue<>();
  private final AtomicLong failed = new AtomicLong();
  private final AtomicLong done = new AtomicLong(); // messages, with those of the warm-up

  private Load5(String[] arguments) {
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      given.put(pair[0], pair[1]);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Load5 load = new Load5(arguments);
    switch (arguments[0]) {
      case "send":
        load.send();
        break;
      case "pass":
        load.pass();
        break;
      case "travel":
        load.travel();
        break;
      default:
        throw new IllegalArgumentException(arguments[0]);
    }
    System.out.flush();
    // The client's threads would keep the process for seconds.
    Runtime.getRuntime().halt(0);
  }

  private int number(String name) {
    return Integer.parseInt(given.get(name));
  }

  private ClientConfiguration configuration() {
    return ClientConfiguration.newBuilder()
        .setEndpoints(given.get("proxy"))
        .enableSsl(false)
        .setRequestTimeout(Duration.ofSeconds(3))
        .build();
  }

  private Producer producer() throws Exception {
    return SERVICE
        .newProducerBuilder()
        .setClientConfiguration(configuration())
        .setTopics(given.get("topic"))
        .build();
  }

  private Map<String, FilterExpression> everything() {
    FilterExpression all = new FilterExpression("*", FilterExpressionType.TAG);
    return Collections.singletonMap(given.get("topic"), all);
  }

  private String group() {
    return "bench_" + Long.toString(System.nanoTime(), 36).replace('-', 'm');
  }

  private byte[] body() {
    byte[] made = new byte[number("bytes")];
    new Random(7).nextBytes(made); // does not compress
    return made;
  }

  private Message message(byte[] body) {
    return SERVICE.newMessageBuilder().setTopic(given.get("topic")).setBody(body).build();
  }

  private boolean sends(Producer producer, byte[] body) {
    try {
      producer.send(message(body));
      return true;
    } catch (Exception error) {
      complain(error);
      return false;
    }
  }

  private static Thread[] started(int count, Runnable what) {
    Thread[] made = new Thread[count];
    for (int i = 0; i < count; i++) {
      made[i] = new Thread(what);
      made[i].start();
    }
    return made;
  }

  /** Threads send again and again; counts what begins and ends in the window. */
  private void send() throws Exception {
    Producer producer = producer();
    byte[] body = body();
    ConcurrentLinkedQueue<Long> ends = new ConcurrentLinkedQueue<>();
    long begin = System.nanoTime() + number("warm_up_ms") * 1_000_000L;
    long end = begin + number("seconds") * SECOND;
    Runnable work =
        () -> {
          for (long now = System.nanoTime(); now < end; ) {
            boolean stored = sends(producer, body);
            long then = System.nanoTime();
            if (stored) {
              done.incrementAndGet();
            }
            if (now >= begin && then <= end) {
              if (stored) {
                times.add(then - now);
                ends.add(then);
              } else {
                failed.incrementAndGet();
              }
            }
            now = then;
          }
        };
    for (Thread one : started(number("threads"), work)) {
      one.join();
    }
    long gap = 0;
    long last = begin;
    for (long at : sorted(ends)) {
      gap = Math.max(gap, at - last);
      last = at;
    }
    report("a_second", times.size() / (double) number("seconds"), "gap_ms",
        Math.max(gap, end - last) / 1e6);
  }

  /** Some threads send so many messages, others receive and acknowledge them. */
  private void pass() throws Exception {
    SimpleConsumer consumer =
        SERVICE
            .newSimpleConsumerBuilder()
            .setClientConfiguration(configuration())
            .setConsumerGroup(group())
            .setSubscriptionExpressions(everything())
            .setAwaitDuration(AWAIT)
            .build();
    consumer.receive(1, Duration.ofSeconds(30)); // the group begins with what comes from now on
    Producer producer = producer();
    byte[] body = body();
    long count = number("count");
    AtomicLong begun = new AtomicLong();
    Set<String> seen = ConcurrentHashMap.newKeySet();
    long began = System.nanoTime();
    Runnable sends =
        () -> {
          while (begun.incrementAndGet() <= count) {
            if (!sends(producer, body)) {
              begun.decrementAndGet();
            }
          }
        };
    Thread[] sending = started(number("threads"), sends);
    long until = began + number("timeout_s") * SECOND;
    Runnable receives =
        () -> {
          while (seen.size() < count && System.nanoTime() < until) {
            try {
              for (MessageView one : consumer.receive(32, Duration.ofSeconds(60))) {
                consumer.ack(one);
                seen.add(one.getMessageId().toString());
              }
            } catch (Exception error) {
              complain(error);
            }
          }
        };
    Thread[] receiving = started(number("receivers"), receives);
    while (seen.size() < count && System.nanoTime() < until) {
      Thread.sleep(5);
    }
    double seconds = (System.nanoTime() - began) / 1e9;
    done.set(seen.size());
    failed.set(Math.max(0, count - seen.size()));
    report("a_second", seen.size() / seconds);
  }

  /** Sends at a rate, and says how long after its planned time each message was consumed. */
  private void travel() throws Exception {
    long perSecond = number("rate");
    Producer producer = producer();
    byte[] blank = body();
    AtomicLong begin = new AtomicLong(Long.MAX_VALUE);
    AtomicLong received = new AtomicLong();
    PushConsumer consumer =
        SERVICE
            .newPushConsumerBuilder()
            .setClientConfiguration(configuration())
            .setConsumerGroup(group())
            .setSubscriptionExpressions(everything())
            .setMessageListener(
                view -> {
                  long now = System.nanoTime();
                  ByteBuffer body = view.getBody();
                  long planned = body.getLong(body.position());
                  done.incrementAndGet();
                  if (planned >= begin.get()) {
                    received.incrementAndGet();
                    times.add(now - planned);
                  }
                  return ConsumeResult.SUCCESS;
                })
            .build();
    Thread.sleep(3000); // its first receives wait
    long start = System.nanoTime();
    begin.set(start + number("warm_up_ms") * 1_000_000L);
    long end = begin.get() + number("seconds") * SECOND;
    AtomicLong next = new AtomicLong();
    AtomicLong sent = new AtomicLong();
    Runnable sends =
        () -> {
          while (true) {
            long planned = start + next.getAndIncrement() * SECOND / perSecond;
            if (planned >= end) {
              return;
            }
            for (long left; (left = planned - System.nanoTime()) > 0; ) {
              LockSupport.parkNanos(left);
            }
            byte[] body = blank.clone();
            ByteBuffer.wrap(body).putLong(planned);
            if (!sends(producer, body)) {
              failed.incrementAndGet();
            } else if (planned >= begin.get()) {
              sent.incrementAndGet();
            }
          }
        };
    for (Thread one : started(number("threads"), sends)) {
      one.join();
    }
    long last = System.nanoTime() + LAST_SECONDS * SECOND;
    while (received.get() < sent.get() && System.nanoTime() < last) {
      Thread.sleep(20);
    }
    failed.addAndGet(Math.max(0, sent.get() - received.get()));
    report();
  }

  /** Each kind of failure is told once. */
  private void complain(Throwable error) {
    if (complaints.size() < 10 && complaints.add(error.getClass().getName())) {
      System.err.println(String.valueOf(error).split("\n")[0]);
    }
  }

  private static long[] sorted(Iterable<Long> values) {
    long[] found = new long[1024];
    int count = 0;
    for (long one : values) {
      if (count == found.length) {
        found = Arrays.copyOf(found, 2 * count);
      }
      found[count++] = one;
    }
    found = Arrays.copyOf(found, count);
    Arrays.sort(found);
    return found;
  }

  private static double ms(long[] sorted, double share) {
    int at = (int) Math.ceil(sorted.length * share) - 1;
    return sorted.length == 0 ? -1 : sorted[Math.max(0, at)] / 1e6;
  }

  private void report(Object... pairs) {
    long[] sorted = sorted(times);
    StringBuilder line = new StringBuilder("{");
    for (int i = 0; i < pairs.length; i += 2) {
      line.append(String.format(Locale.ROOT, "\"%s\": %.3f, ", pairs[i], (Double) pairs[i + 1]));
    }
    line.append(
        String.format(
            Locale.ROOT,
            "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"failed\": %d, \"messages\": %d}",
            ms(sorted, 0.5),
            ms(sorted, 0.99),
            failed.get(),
            done.get()));
    System.out.println(line);
  }
}
