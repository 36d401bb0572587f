import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumer that an application polls. */
final class LitePulls {
    private static final long POLL_MILLIS = 200;

    private LitePulls() {
    }

    /** A second consumer of the group goes on behind the first one's offsets. */
    static String subscribed(Place place) throws Exception {
        DefaultMQProducer producer = place.producer();
        Place.send(producer, place.messages(Place.MESSAGES));
        DefaultLitePullConsumer first = place.puller();
        first.subscribe(place.topic, "*");
        first.start();
        List<String> keys = place.keys(Place.MESSAGES);
        Failed.unless(polled(first, keys.size()).equals(new HashSet<>(keys)), "the first consumer polled otherwise");
        first.commitSync(); // by itself it commits every 5 s, and not at its end
        first.shutdown();
        for (int number = 100; number < 105; number++) {
            Place.acknowledged(producer.send(place.message(number)));
        }
        DefaultLitePullConsumer second = place.puller();
        second.subscribe(place.topic, "*");
        second.start();
        Collection<String> rest = polled(second, 5);
        Failed.unless(rest.size() == 5 && keys.stream().noneMatch(rest::contains), "the second one polled " + rest);
        return Place.MESSAGES + " polled once, the next consumer polled only the 5 new ones";
    }

    /** Queues that the application chooses, from the places that it chooses. */
    static String assigned(Place place) throws Exception {
        DefaultMQProducer producer = place.producer();
        List<SendResult> sent = new ArrayList<>();
        for (Message message : place.messages(Place.MESSAGES)) {
            sent.add(Place.acknowledged(producer.send(message, (queues, one, chosen) -> queues.get(0), 0)));
        }
        DefaultLitePullConsumer consumer = place.puller();
        consumer.setAutoCommit(false);
        consumer.start();
        MessageQueue queue = sent.get(0).getMessageQueue();
        Collection<MessageQueue> known = consumer.fetchMessageQueues(place.topic);
        Failed.unless(known.size() == 4, known.size() + " queues");
        consumer.assign(List.of(queue));
        consumer.seek(queue, 15);
        Failed.unless(polled(consumer, 5).equals(new HashSet<>(place.keys(20).subList(15, 20))), "15 to 19 did not come");
        consumer.seekToBegin(queue);
        Failed.unless(polled(consumer, 20).equals(new HashSet<>(place.keys(20))), "0 to 19 did not come");
        consumer.commitSync();
        long offset = consumer.offsetForTimestamp(queue, System.currentTimeMillis() + TimeUnit.HOURS.toMillis(1));
        Failed.unless(offset == 20, "the offset of a later time is " + offset);
        return "5 polled from offset 15, then all 20 from the beginning";
    }

    /** The keys that come until there are so many, and a moment longer. */
    private static Collection<String> polled(DefaultLitePullConsumer consumer, int count) {
        List<String> keys = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Place.SECONDS);
        while (keys.size() < count && System.nanoTime() < deadline) {
            consumer.poll(POLL_MILLIS).stream().map(MessageExt::getKeys).forEach(keys::add);
        }
        consumer.poll(POLL_MILLIS).stream().map(MessageExt::getKeys).forEach(keys::add);
        Failed.unless(keys.size() == count, keys.size() + " messages came instead of " + count);
        return new HashSet<>(keys);
    }
}
