import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;

/** Clients that record what they send and consume, in a topic of the broker. */
final class Traces {
    private static final String TOPIC = "RMQ_SYS_TRACE_TOPIC";

    private Traces() {
    }

    static String ofProducerAndConsumer(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.configured(place.prepared(new DefaultMQPushConsumer(
            place.group(), null, new AllocateMessageQueueAveragely(), true, null)));
        Inbox inbox = place.reading(consumer);
        DefaultMQProducer producer = place.started(place.prepared(
            new DefaultMQProducer(place.topic + "-senders", null, true, null)));
        List<SendResult> sent = Place.send(producer, place.messages(5));
        inbox.expectOnce(place.keys(5), Place.SECONDS);
        for (SendResult result : sent) {
            awaitTrace(producer, result.getMsgId());
        }
        return "5 sent and consumed, each has its sending, its arrival and its end in the trace topic";
    }

    /** Traces are sent a moment later, under the id of what they are about. */
    private static void awaitTrace(DefaultMQProducer producer, String id) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Place.SECONDS);
        List<String> kinds = List.of("Pub", "SubBefore", "SubAfter");
        List<String> missing = kinds;
        while (System.nanoTime() < deadline) {
            String text = read(producer, id);
            missing = kinds.stream().filter(kind -> !text.contains("\n" + kind + "\u0001")).toList();
            if (missing.isEmpty()) {
                return;
            }
            Thread.sleep(500);
        }
        throw new Failed("no " + missing + " of " + id + " in " + TOPIC);
    }

    /** The records about a message, each behind a line's end. */
    private static String read(DefaultMQProducer producer, String id) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        try {
            QueryResult result = producer.queryMessage(TOPIC, id, 64, 0, Long.MAX_VALUE);
            found.addAll(result.getMessageList());
        } catch (MQClientException error) {
            return error.toString();
        }
        return found.stream().map(message -> new String(message.getBody()).replace("\u0002", "\n"))
            .collect(Collectors.joining("\n", "\n", ""));
    }
}
