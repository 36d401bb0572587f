import java.util.List;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;

/** Consumers that want only some messages. */
final class Filters {
    private static final String[] TAGS = {"red", "green", "blue"};

    private Filters() {
    }

    static String byTags(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, "red || blue");
        Inbox inbox = place.reading(consumer, message -> true);
        send(place);
        inbox.expectOnce(numbers(place, 1), Place.SECONDS);
        return "14 of 21 have one of two tags, each came once";
    }

    static String byCondition(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, MessageSelector.bySql("n BETWEEN 7 AND 13 AND TAGS IN ('red', 'blue')"));
        Inbox inbox = place.reading(consumer, message -> true);
        send(place);
        inbox.expectOnce(numbers(place, 1).stream().filter(key -> {
            int number = Integer.parseInt(key.substring(place.topic.length() + 1));
            return number >= 7 && number <= 13;
        }).toList(), Place.SECONDS);
        return "the matching messages of 21 came once";
    }

    /** The broker names the mistake, and the consumer does not start. */
    static String byNonsense(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, MessageSelector.bySql("n BETWEEN 7 OR"));
        try {
            place.reading(consumer, message -> true);
        } catch (MQClientException error) {
            Throwable cause = error.getCause();
            Failed.unless(error.toString().contains("CODE: 23") || String.valueOf(cause).contains("CODE: 23"),
                "refused otherwise: " + error + ", " + cause);
            return "refused with 23";
        }
        throw new Failed("the consumer started");
    }

    private static void send(Place place) throws Exception {
        List<Message> messages = place.messages(21);
        IntStream.range(0, 21).forEach(number -> messages.get(number).setTags(TAGS[number % 3]));
        Place.send(place.producer(), messages);
    }

    /** The keys of all but one colour. */
    private static List<String> numbers(Place place, int without) {
        return IntStream.range(0, 21).filter(number -> number % 3 != without).mapToObj(place::key).toList();
    }
}
