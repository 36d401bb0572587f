import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Single messages, found again. */
final class Queries {
    private Queries() {
    }

    static String byKeyAndIds(Place place) throws Exception {
        DefaultMQProducer producer = place.producer();
        long begin = System.currentTimeMillis() - TimeUnit.MINUTES.toMillis(1);
        List<Message> messages = place.messages(Place.MESSAGES);
        messages.forEach(message -> message.setKeys(List.of(message.getKeys(), place.topic + "-all")));
        List<SendResult> sent = Place.send(producer, messages);
        for (int number : new int[] {0, 7, 19}) {
            SendResult result = sent.get(number);
            check(place, number, producer.viewMessage(place.topic, result.getOffsetMsgId()), "offset id");
            check(place, number, producer.viewMessage(place.topic, result.getMsgId()), "unique key");
            QueryResult found = producer.queryMessage(place.topic, place.key(number), 10, begin, Long.MAX_VALUE);
            Failed.unless(found.getMessageList().size() == 1, found.getMessageList().size() + " messages have a key");
            check(place, number, found.getMessageList().get(0), "key");
        }
        long all = producer.queryMessage(place.topic, place.topic + "-all", 64, begin, Long.MAX_VALUE)
            .getMessageList().size();
        Failed.unless(all == Place.MESSAGES, all + " messages have the common key");
        for (String missing : List.of(place.key(99), sent.get(0).getMsgId().replace('0', '1'))) {
            expectNothing(producer, place, missing, begin);
        }
        return "3 found by key, unique key and offset id, 20 by a common key";
    }

    static String offsets(Place place) throws Exception {
        DefaultMQProducer producer = place.producer();
        long before = System.currentTimeMillis();
        List<SendResult> sent = Place.send(producer, place.messages(Place.MESSAGES));
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(place.topic);
        long total = 0;
        for (MessageQueue queue : queues) {
            long ends = producer.maxOffset(queue);
            Failed.unless(ends == sent.stream().filter(one -> one.getMessageQueue().equals(queue)).count(),
                queue + " ends at " + ends);
            Failed.unless(producer.minOffset(queue) == 0, queue + " does not begin at 0");
            long first = producer.earliestMsgStoreTime(queue);
            Failed.unless(first >= before - 1000 && first <= System.currentTimeMillis() + 1000,
                queue + " began at " + first);
            Failed.unless(producer.searchOffset(queue, before - 60_000) == 0, queue + ": an early time is not at 0");
            total += ends;
        }
        Failed.unless(total == Place.MESSAGES, total + " messages are in " + queues.size() + " queues");
        return "beginnings, ends, times of " + queues.size() + " queues are as sent";
    }

    private static void expectNothing(DefaultMQProducer producer, Place place, String key, long begin)
            throws Exception {
        try {
            QueryResult found = producer.queryMessage(place.topic, key, 10, begin, Long.MAX_VALUE);
            throw new Failed(found.getMessageList().size() + " messages have a key that was never sent");
        } catch (MQClientException error) {
            Failed.unless(error.toString().contains("query message by key finished, but no message"),
                "nothing found, said otherwise: " + error);
        }
    }

    private static void check(Place place, int number, MessageExt message, String by) {
        Failed.unless(message != null && new String(message.getBody()).equals(place.key(number)),
            "by " + by + " number " + number + " was found as " + message);
    }
}
