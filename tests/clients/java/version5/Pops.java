import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** Groups that an operator told to pop. The consumers are ordinary push consumers. */
final class Pops {
    private static final int SHARING = 8;

    private Pops() {
    }

    /** More consumers than queues. */
    static String shared(Place place) throws Exception {
        popping(place);
        List<Inbox> inboxes = List.of(reading(place), reading(place), reading(place), reading(place), reading(place));
        int count = 200;
        Place.send(place.producer(), place.messages(count));
        Set<String> expected = new HashSet<>(place.keys(count));
        long deadline = System.nanoTime() + Place.SECONDS * 1_000_000_000L;
        while (total(inboxes) < count && System.nanoTime() < deadline) {
            Thread.sleep(100);
        }
        Thread.sleep(1000);
        Failed.unless(total(inboxes) == count, total(inboxes) + " deliveries of " + count);
        inboxes.forEach(inbox -> inbox.all().forEach(one -> expected.remove(one.key())));
        Failed.unless(expected.isEmpty(), expected.size() + " did not come");
        long busy = inboxes.stream().filter(inbox -> !inbox.all().isEmpty()).count();
        return count + " came once each, to " + busy + " of 5 consumers of 4 queues";
    }

    /** What fails is given again, and is acknowledged then. */
    static String again(Place place) throws Exception {
        popping(place);
        Set<String> toFail = ConcurrentHashMap.newKeySet();
        toFail.addAll(place.keys(3));
        DefaultMQPushConsumer consumer = consumer(place);
        Inbox inbox = place.reading(consumer, message -> !toFail.remove(message.getKeys()));
        Place.send(place.producer(), place.messages(Place.MESSAGES));
        Failed.unless(inbox.await(all -> all.size() >= Place.MESSAGES + 3, Place.SECONDS),
            inbox.all().size() + " of " + (Place.MESSAGES + 3) + " deliveries");
        for (int number = 0; number < Place.MESSAGES; number++) {
            Failed.unless(inbox.count(place.key(number)) == (number < 3 ? 2 : 1), place.key(number) + " came otherwise");
        }
        Failed.unless(inbox.all().stream().anyMatch(one -> one.message().getReconsumeTimes() == 1), "none is a repeat");
        return Place.MESSAGES + " came, 3 of them again";
    }

    /** A message that is held for longer than it was given for goes to others. */
    static String heldTooLong(Place place) throws Exception {
        popping(place);
        DefaultMQPushConsumer consumer = consumer(place);
        consumer.setPopInvisibleTime(5000);
        Set<String> toHold = ConcurrentHashMap.newKeySet();
        toHold.add(place.key(2));
        Inbox inbox = place.reading(consumer, message -> {
            if (toHold.remove(message.getKeys())) {
                try {
                    Thread.sleep(8000);
                } catch (InterruptedException error) {
                    return false;
                }
            }
            return true;
        });
        Place.send(place.producer(), place.messages(5));
        Failed.unless(inbox.await(all -> all.size() >= 6, Place.SECONDS), inbox.all().size() + " of 6 deliveries");
        Failed.unless(inbox.count(place.key(2)) == 2, "another message came twice");
        return "5 came, the one that was held again";
    }

    /** The group goes on from where it stopped when it pulls again. */
    static String backToPulls(Place place) throws Exception {
        popping(place);
        DefaultMQPushConsumer popper = consumer(place);
        Inbox popped = place.reading(popper, message -> true);
        var producer = place.producer();
        Place.send(producer, place.messages(Place.MESSAGES));
        popped.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS);
        popper.shutdown();
        setMode(place, MessageRequestMode.PULL);
        Inbox pulled = place.reading(place.consumer());
        for (int number = 50; number < 60; number++) {
            Place.acknowledged(producer.send(place.message(number)));
        }
        pulled.expectOnce(place.keys(60).subList(50, 60), Place.SECONDS);
        return Place.MESSAGES + " popped, then only the 10 new ones pulled";
    }

    static void popping(Place place) throws Exception {
        setMode(place, MessageRequestMode.POP);
    }

    private static void setMode(Place place, MessageRequestMode mode) throws Exception {
        for (String broker : place.brokers()) {
            place.admin.setMessageRequestMode(broker, place.topic, place.group(), mode, SHARING, 5000);
        }
    }

    static DefaultMQPushConsumer consumer(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setClientRebalance(false);
        consumer.subscribe(place.topic, "*");
        return consumer;
    }

    private static Inbox reading(Place place) throws Exception {
        return place.reading(consumer(place), message -> true);
    }

    private static int total(List<Inbox> inboxes) {
        return inboxes.stream().mapToInt(inbox -> inbox.all().size()).sum();
    }
}
