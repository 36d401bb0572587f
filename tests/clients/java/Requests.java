import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;

/** Questions and replies. */
final class Requests {
    private static final long REPLY_MILLIS = 20_000;
    private static final long NO_REPLY_MILLIS = 2_000;

    private Requests() {
    }

    /** Each question waits for its reply. The client of 5.3 cannot: it gives up at the acknowledgement. */
    static String waiting(Place place) throws Exception {
        replying(place);
        DefaultMQProducer producer = place.producer();
        for (Message message : place.messages(Place.MESSAGES)) {
            Message reply = producer.request(message, REPLY_MILLIS);
            Failed.unless(text(reply).equals("reply to " + message.getKeys()), "the reply was " + text(reply));
        }
        return Place.MESSAGES + " asked, each got its own reply";
    }

    /** Both versions call back at the acknowledgement, too, without a message. */
    static String calledBack(Place place) throws Exception {
        replying(place);
        DefaultMQProducer producer = place.producer();
        Map<String, String> replies = new ConcurrentHashMap<>();
        CountDownLatch missing = new CountDownLatch(Place.MESSAGES);
        for (Message message : place.messages(Place.MESSAGES)) {
            producer.request(message, new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null && replies.put(message.getKeys(), text(reply)) == null) {
                        missing.countDown();
                    }
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                }
            }, REPLY_MILLIS);
        }
        missing.await(Place.SECONDS, TimeUnit.SECONDS);
        Failed.unless(missing.getCount() == 0, missing.getCount() + " replies are missing");
        replies.forEach((key, reply) -> Failed.unless(reply.equals("reply to " + key), key + " got " + reply));
        return Place.MESSAGES + " asked, each got its own reply";
    }

    static String unanswered(Place place) throws Exception {
        try {
            place.producer().request(place.message(0), NO_REPLY_MILLIS);
        } catch (RequestTimeoutException error) {
            return "no consumer replied, the producer said so";
        }
        throw new Failed("a reply came from nowhere");
    }

    private static void replying(Place place) throws Exception {
        DefaultMQProducer replier = place.started(
            place.prepared(new DefaultMQProducer(place.topic + "-repliers")));
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, "*");
        place.reading(consumer, message -> {
            try {
                byte[] body = ("reply to " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
                Place.acknowledged(replier.send(MessageUtil.createReplyMessage(message, body)));
                return true;
            } catch (Exception error) {
                error.printStackTrace();
                return false;
            }
        });
    }

    private static String text(Message reply) {
        return new String(reply.getBody(), StandardCharsets.UTF_8);
    }
}
