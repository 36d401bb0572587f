import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Puts a load on a group of brokers, whichever it is, and prints one line of JSON.
 *
 * <p>Load WORK NAME=VALUE... where WORK is send, fill, drain or travel. Producers do not try again: a
 * failed send counts as failed.
 */
public final class Load {
  private static final int READY_SECONDS = 30;
  private static final int BODY_HEAD = 24;

  private final Map<String, String> given = new HashMap<>();
  private final String mark = "x" + Long.toString(System.nanoTime(), 36).replace('-', 'm');

  private Load(String[] arguments) {
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      given.put(pair[0], pair[1]);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Load load = new Load(arguments);
    switch (arguments[0]) {
      case "send":
        load.send();
        break;
      case "fill":
        load.fill();
        break;
      case "drain":
        load.drain();
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

  private int number(String name, int otherwise) {
    return Integer.parseInt(given.getOrDefault(name, Integer.toString(otherwise)));
  }

  private DefaultMQProducer producer() throws Exception {
    DefaultMQProducer made = new DefaultMQProducer("bench_producer");
    made.setNamesrvAddr(given.get("nameserver"));
    made.setInstanceName(mark);
    made.setRetryTimesWhenSendFailed(0);
    made.setRetryTimesWhenSendAsyncFailed(0);
    made.setSendMsgTimeout(number("timeout_ms", 10_000));
    made.start();
    return made;
  }

  private DefaultMQPushConsumer consumer(String topic, MessageListenerConcurrently listener)
      throws Exception {
    DefaultMQPushConsumer made = new DefaultMQPushConsumer("bench_consumer_" + mark);
    made.setNamesrvAddr(given.get("nameserver"));
    made.setInstanceName(mark);
    made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    made.setConsumeThreadMin(number("threads", 4));
    made.setConsumeThreadMax(number("threads", 4));
    made.setPullBatchSize(number("pull", 32));
    made.setConsumeMessageBatchMaxSize(number("consume", 1));
    made.subscribe(topic, "*");
    made.registerMessageListener(listener);
    return made;
  }

  private byte[] body() {
    byte[] made = new byte[Math.max(BODY_HEAD, number("bytes", 1024))];
    new Random(7).nextBytes(made); // does not compress
    Arrays.fill(made, 0, BODY_HEAD, (byte) 0);
    return made;
  }

  private Message message(byte[] body) {
    Message made = new Message(given.get("topic"), body);
    if (given.containsKey("delay_level")) {
      made.setDelayTimeLevel(number("delay_level", 0));
    }
    return made;
  }

  private List<Message> messages(byte[] body, int count) {
    List<Message> made = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      made.add(message(body));
    }
    return made;
  }

  /** Each of some threads sends again and again; counts what begins and ends in the window. */
  private void send() throws Exception {
    int threads = number("threads", 64);
    int batch = number("batch", 1);
    DefaultMQProducer producer = producer();
    byte[] body = body();
    AtomicLong failed = new AtomicLong();
    AtomicLong everStored = new AtomicLong(); // with those of the warm-up
    Durations[] all = new Durations[threads];
    Thread[] running = new Thread[threads];
    long begin = System.nanoTime() + number("warm_up_ms", 3000) * 1_000_000L;
    long end = begin + number("seconds", 8) * 1_000_000_000L;
    for (int i = 0; i < threads; i++) {
      Durations own = all[i] = new Durations();
      running[i] =
          new Thread(
              () -> {
                for (long now = System.nanoTime(); now < end; ) {
                  boolean stored = false;
                  try {
                    SendResult result =
                        batch == 1
                            ? producer.send(message(body))
                            : producer.send(messages(body, batch));
                    stored = result.getSendStatus() == SendStatus.SEND_OK;
                  } catch (Exception error) {
                    complain(error);
                  }
                  long then = System.nanoTime();
                  if (stored) {
                    everStored.addAndGet(batch);
                  }
                  if (now >= begin && then <= end) {
                    if (stored) {
                      own.add(then - now);
                    } else {
                      failed.incrementAndGet();
                    }
                  }
                  now = then;
                }
              });
      running[i].start();
    }
    for (Thread one : running) {
      one.join();
    }
    long[] sorted = Durations.sorted(all);
    double rate = sorted.length * (double) batch / number("seconds", 8);
    print("a_second", rate, "p50_ms", ms(sorted, 0.5), "p99_ms", ms(sorted, 0.99), "failed",
        (double) failed.get(), "messages", (double) everStored.get());
  }

  /** Stores so many messages, with many sends in flight. */
  private void fill() throws Exception {
    DefaultMQProducer producer = producer();
    byte[] body = body();
    int batch = number("batch", 1);
    int count = number("count", 0);
    int inFlight = number("in_flight", 64);
    Semaphore room = new Semaphore(inFlight);
    AtomicLong stored = new AtomicLong();
    AtomicLong failed = new AtomicLong();
    long began = System.nanoTime();
    AtomicLong begun = new AtomicLong();
    SendCallback done =
        new SendCallback() {
          @Override
          public void onSuccess(SendResult result) {
            stored.addAndGet(batch);
            room.release();
          }

          @Override
          public void onException(Throwable error) {
            complain(error);
            failed.incrementAndGet();
            begun.addAndGet(-batch);
            // A broker that is asked for too much must have a moment.
            LockSupport.parkNanos(10_000_000L);
            room.release();
          }
        };
    while (stored.get() < count && failed.get() < count) {
      room.acquire();
      if (begun.get() >= count) {
        room.acquire(inFlight - 1); // until all are answered
        room.release(inFlight);
        continue;
      }
      begun.addAndGet(batch);
      if (batch == 1) {
        producer.send(message(body), done);
      } else {
        producer.send(messages(body, batch), done);
      }
    }
    room.acquire(inFlight);
    double seconds = (System.nanoTime() - began) / 1e9;
    print("stored", (double) stored.get(), "seconds", seconds, "failed",
        (double) Math.max(0, count - stored.get()));
  }

  /** A new consumer group reads all that is there, as fast as it can. */
  private void drain() throws Exception {
    long expected = number("count", 0);
    Set<Long> seen = new HashSet<>();
    CountDownLatch all = new CountDownLatch(1);
    AtomicLong first = new AtomicLong();
    DefaultMQPushConsumer consumer =
        consumer(
            given.get("topic"),
            (messages, context) -> {
              first.compareAndSet(0, System.nanoTime());
              synchronized (seen) {
                for (MessageExt one : messages) {
                  seen.add((long) one.getQueueId() << 48 | one.getQueueOffset());
                }
                if (seen.size() >= expected) {
                  all.countDown();
                }
              }
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
    boolean got = all.await(number("timeout_s", 60), TimeUnit.SECONDS);
    double seconds = (System.nanoTime() - first.get()) / 1e9;
    synchronized (seen) {
      print("a_second", seen.size() / seconds, "messages", (double) seen.size(), "failed",
          got ? 0.0 : 1.0);
    }
  }

  /** Sends at a rate, and says how long after its planned time each message was consumed. */
  private void travel() throws Exception {
    long perSecond = number("rate", 2000);
    String topic = given.get("topic");
    DefaultMQProducer producer = producer();
    Durations times = new Durations();
    AtomicLong begin = new AtomicLong(Long.MAX_VALUE);
    CountDownLatch ready = new CountDownLatch(1);
    AtomicLong received = new AtomicLong();
    AtomicLong everReceived = new AtomicLong(); // with those of the warm-up
    long untilReady = System.nanoTime() + READY_SECONDS * 1_000_000_000L;
    byte[] blank = body();
    while (true) { // the topic has to have a route before a consumer asks for it
      try {
        producer.send(message(blank));
        break;
      } catch (Exception error) {
        if (System.nanoTime() > untilReady) {
          throw error;
        }
        Thread.sleep(100);
      }
    }
    DefaultMQPushConsumer consumer =
        consumer(
            topic,
            (messages, context) -> {
              long now = System.nanoTime();
              for (MessageExt one : messages) {
                long planned = ByteBuffer.wrap(one.getBody()).getLong();
                ready.countDown();
                everReceived.incrementAndGet();
                if (planned >= begin.get()) {
                  received.incrementAndGet();
                  synchronized (times) {
                    times.add(now - planned);
                  }
                }
              }
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
    if (!ready.await(READY_SECONDS, TimeUnit.SECONDS)) {
      throw new IllegalStateException("nothing was consumed");
    }
    long start = System.nanoTime();
    begin.set(start + number("warm_up_ms", 5000) * 1_000_000L);
    long end = begin.get() + number("seconds", 10) * 1_000_000_000L;
    AtomicLong next = new AtomicLong();
    AtomicLong sent = new AtomicLong();
    AtomicLong failed = new AtomicLong();
    Thread[] senders = new Thread[number("senders", 8)];
    for (int i = 0; i < senders.length; i++) {
      senders[i] =
          new Thread(
              () -> {
                while (true) {
                  long planned = start + next.getAndIncrement() * 1_000_000_000L / perSecond;
                  if (planned >= end) {
                    return;
                  }
                  for (long left; (left = planned - System.nanoTime()) > 0; ) {
                    LockSupport.parkNanos(left);
                  }
                  byte[] body = blank.clone();
                  ByteBuffer.wrap(body).putLong(planned);
                  try {
                    producer.send(message(body));
                    if (planned >= begin.get()) {
                      sent.incrementAndGet();
                    }
                  } catch (Exception error) {
                    complain(error);
                    failed.incrementAndGet();
                  }
                }
              });
      senders[i].start();
    }
    for (Thread one : senders) {
      one.join();
    }
    long last = System.nanoTime() + 5_000_000_000L;
    while (received.get() < sent.get() && System.nanoTime() < last) {
      Thread.sleep(20);
    }
    synchronized (times) {
      long[] sorted = Durations.sorted(times);
      print("p50_ms", ms(sorted, 0.5), "p99_ms", ms(sorted, 0.99), "failed",
          (double) failed.get() + Math.max(0, sent.get() - received.get()), "messages",
          (double) everReceived.get());
    }
  }

  private final Set<String> complaints = new HashSet<>();

  /** Each kind of failure is told once. */
  private void complain(Throwable error) {
    synchronized (complaints) {
      if (complaints.add(error.getClass().getName()) && complaints.size() < 10) {
        System.err.println(String.valueOf(error).split("\n")[0]);
      }
    }
  }

  private static double ms(long[] sorted, double share) {
    if (sorted.length == 0) {
      return -1;
    }
    int at = (int) Math.ceil(sorted.length * share) - 1;
    return sorted[Math.max(0, at)] / 1e6;
  }

  private static void print(Object... pairs) {
    StringBuilder line = new StringBuilder("{");
    for (int i = 0; i < pairs.length; i += 2) {
      line.append(i == 0 ? "" : ", ").append('"').append(pairs[i]).append("\": ");
      line.append(String.format(Locale.ROOT, "%.3f", (Double) pairs[i + 1]));
    }
    System.out.println(line.append('}'));
  }

  /** Nanoseconds, as many as come. */
  private static final class Durations {
    private long[] values = new long[1 << 14];
    private int count;

    void add(long value) {
      if (count == values.length) {
        values = Arrays.copyOf(values, 2 * count);
      }
      values[count++] = value;
    }

    static long[] sorted(Durations... parts) {
      int count = 0;
      for (Durations one : parts) {
        count += one.count;
      }
      long[] all = new long[count];
      int at = 0;
      for (Durations one : parts) {
        System.arraycopy(one.values, 0, all, at, one.count);
        at += one.count;
      }
      Arrays.sort(all);
      return all;
    }
  }
}
