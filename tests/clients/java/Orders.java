import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumption in the order of each queue. Message number n belongs to account n % 4, which has one queue. */
final class Orders {
    private static final int ACCOUNTS = 4;
    private static final int MOVED = 160;
    /** Three quarters of the time between two messages of a queue. */
    private static final long WORK_MILLIS = 150;

    private Orders() {
    }

    /** Two messages fail once: what is behind them waits. */
    static String suspended(Place place) throws Exception {
        Set<String> toFail = ConcurrentHashMap.newKeySet();
        toFail.addAll(List.of(place.key(5), place.key(18)));
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, "*");
        Inbox inbox = place.readingInOrder(consumer, message -> !toFail.remove(message.getKeys()));
        send(place, place.producer(), 0, 40, 0);
        Failed.unless(inbox.await(all -> all.size() >= 42, Place.SECONDS), inbox.all().size() + " of 42 deliveries");
        List<Inbox.Delivery> all = inbox.all();
        Failed.unless(inbox.count(place.key(5)) == 2 && inbox.count(place.key(18)) == 2 && all.size() == 42,
            "the failed messages did not come twice, or others did");
        checkOrder(all, 40, true);
        return "40 came in the order of 4 queues, 2 of them twice in a row";
    }

    /** A second consumer joins while messages flow, and the first one leaves; never do both work on one queue. */
    static String movedToAnotherConsumer(Place place) throws Exception {
        Inbox inbox = new Inbox();
        Set<Integer> busy = ConcurrentHashMap.newKeySet();
        Set<String> atOnce = ConcurrentHashMap.newKeySet();
        Set<String> takenBySecond = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer first = place.consumer();
        DefaultMQPushConsumer second = place.consumer();
        for (DefaultMQPushConsumer consumer : List.of(first, second)) {
            consumer.subscribe(place.topic, "*");
        }
        Predicate<MessageExt> slowly = message -> {
            inbox.add(message);
            if (!busy.add(message.getQueueId())) {
                atOnce.add(message.getKeys());
            }
            boolean taken = pause();
            busy.remove(message.getQueueId());
            return taken;
        };
        place.readingInOrder(first, slowly);
        DefaultMQProducer producer = place.producer();
        send(place, producer, 0, 40, 10);
        Failed.unless(inbox.await(all -> all.size() >= 40, Place.SECONDS), "the first consumer took too few");
        place.readingInOrder(second, message -> {
            takenBySecond.add(message.getKeys());
            return slowly.test(message);
        });
        send(place, producer, 40, MOVED / 2, 50);
        Thread leaving = new Thread(first::shutdown);
        leaving.start();
        send(place, producer, MOVED / 2, MOVED, 50);
        leaving.join();
        Failed.unless(inbox.await(all -> keys(all) == MOVED, Place.SECONDS), keys(inbox.all()) + " of " + MOVED + " came");
        checkOrder(inbox.all(), MOVED, false);
        Failed.unless(atOnce.isEmpty(), "both consumers worked on one queue: " + atOnce);
        Failed.unless(takenBySecond.contains(place.key(MOVED - 1)), "the second consumer took nothing");
        return MOVED + " came in order, " + takenBySecond.size() + " of them to the second consumer, "
            + (inbox.all().size() - MOVED) + " twice";
    }

    /** Work on a message; whether it was not interrupted. */
    private static boolean pause() {
        try {
            Thread.sleep(WORK_MILLIS);
            return true;
        } catch (InterruptedException error) {
            return false;
        }
    }

    private static long keys(List<Inbox.Delivery> all) {
        return all.stream().map(Inbox.Delivery::key).distinct().count();
    }

    /** Send each until it is acknowledged; how many sends failed. */
    static int send(Place place, DefaultMQProducer producer, int from, int to, long pauseMillis) throws Exception {
        int failed = 0;
        for (int number = from; number < to; number++) {
            Message message = place.message(number);
            int account = number % ACCOUNTS;
            failed += Failovers.insist(() -> Place.acknowledged(producer.send(
                message, (queues, one, chosen) -> queues.get((Integer) chosen), account)));
            Thread.sleep(pauseMillis);
        }
        return failed;
    }

    /** Each account's messages came one behind the other; a repeat comes at once, if any may come. */
    static void checkOrder(List<Inbox.Delivery> all, int count, boolean atOnce) {
        Map<Integer, List<Integer>> accounts = new HashMap<>();
        for (Inbox.Delivery one : all) {
            int number = Integer.parseInt(one.message().getUserProperty("n"));
            List<Integer> account = accounts.computeIfAbsent(number % ACCOUNTS, key -> new ArrayList<>());
            int last = account.isEmpty() ? number % ACCOUNTS - ACCOUNTS : account.get(account.size() - 1);
            boolean again = atOnce ? number == last : account.contains(number);
            Failed.unless(again || number == last + ACCOUNTS, number + " came behind " + account);
            if (!again) {
                account.add(number);
            }
        }
        Failed.unless(accounts.values().stream().mapToInt(List::size).sum() == count, "messages are missing");
    }
}
