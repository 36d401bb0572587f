import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.JsonArray;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonNull;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;
import org.apache.rocketmq.shaded.com.google.gson.JsonParser;

/**
 * Does what lines of standard input ask for with the Java client of RocketMQ 5. The words are those of
 * tests/clients/driver.py.
 */
public final class Driver {
    private static final ClientServiceProvider SERVICE = ClientServiceProvider.loadService();
    private static final PrintStream OUT = System.out;
    private static final Map<String, AutoCloseable> CLIENTS = new ConcurrentHashMap<>();
    private static final List<MessageView> RECEIVED = new ArrayList<>();

    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // libraries print, too
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService threads = Executors.newCachedThreadPool();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject asked = new JsonParser().parse(line).getAsJsonObject();
            threads.execute(() -> answer(asked));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(JsonObject asked) {
        JsonObject told;
        try {
            told = done(asked);
        } catch (Throwable error) {
            error.printStackTrace();
            told = problem(error);
        }
        told.add("answer", asked.get("answer"));
        tell(told);
    }

    private static JsonObject done(JsonObject asked) throws Exception {
        switch (text(asked, "do")) {
            case "producer":
                return producer(asked);
            case "simple":
                return simple(asked);
            case "push":
                return push(asked);
            case "lite":
                return lite(asked);
            case "subscribe":
                lite(text(asked, "name")).subscribeLite(text(asked, "lite"));
                return new JsonObject();
            case "unsubscribe":
                lite(text(asked, "name")).unsubscribeLite(text(asked, "lite"));
                return new JsonObject();
            case "send":
                return send(asked);
            case "transact":
                return transact(asked);
            case "recall":
                return recall(asked);
            case "receive":
                return receive(asked);
            case "ack":
                consumer(asked).ack(taken(asked));
                return new JsonObject();
            case "change":
                consumer(asked).changeInvisibleDuration(taken(asked), invisible(asked));
                return new JsonObject();
            case "close":
                CLIENTS.remove(text(asked, "name")).close();
                return new JsonObject();
            default:
                throw new IllegalArgumentException(asked.toString());
        }
    }

    private static JsonObject producer(JsonObject asked) throws ClientException {
        var builder = SERVICE.newProducerBuilder().setClientConfiguration(configuration(asked));
        List<String> topics = new ArrayList<>();
        asked.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
        builder.setTopics(topics.toArray(new String[0]));
        if (asked.get("transactional").getAsBoolean()) {
            builder.setTransactionChecker(view -> {
                JsonObject told = shown(view);
                told.addProperty("event", "check");
                tell(told);
                switch (view.getProperties().get("check")) {
                    case "commit":
                        return TransactionResolution.COMMIT;
                    case "rollback":
                        return TransactionResolution.ROLLBACK;
                    default:
                        return TransactionResolution.UNKNOWN;
                }
            });
        }
        CLIENTS.put(text(asked, "name"), builder.build());
        return new JsonObject();
    }

    private static JsonObject simple(JsonObject asked) throws ClientException {
        CLIENTS.put(text(asked, "name"), SERVICE.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(text(asked, "group"))
            .setSubscriptionExpressions(filters(asked))
            .setAwaitDuration(Duration.ofSeconds(asked.get("wait_s").getAsInt()))
            .build());
        return new JsonObject();
    }

    private static JsonObject push(JsonObject asked) throws ClientException {
        CLIENTS.put(text(asked, "name"), SERVICE.newPushConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(text(asked, "group"))
            .setSubscriptionExpressions(filters(asked))
            .setMessageListener(listener(text(asked, "name")))
            .build());
        return new JsonObject();
    }

    private static JsonObject lite(JsonObject asked) throws ClientException {
        CLIENTS.put(text(asked, "name"), SERVICE.newLitePushConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(text(asked, "group"))
            .bindTopic(text(asked, "topic"))
            .setMessageListener(listener(text(asked, "name")))
            .build());
        return new JsonObject();
    }

    private static MessageListener listener(String name) {
        Map<String, AtomicInteger> deliveries = new ConcurrentHashMap<>();
        return view -> {
            String id = view.getMessageId().toString();
            int count = deliveries.computeIfAbsent(id, key -> new AtomicInteger()).incrementAndGet();
            JsonObject told = shown(view);
            told.addProperty("event", "message");
            told.addProperty("name", name);
            tell(told);
            try {
                Thread.sleep(number(view, "hold"));
            } catch (InterruptedException error) {
                return ConsumeResult.FAILURE;
            }
            return count <= number(view, "fail") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
    }

    private static JsonObject send(JsonObject asked) {
        Producer producer = (Producer) CLIENTS.get(text(asked, "name"));
        boolean isAtOnce = asked.get("at_once").getAsBoolean();
        List<CompletableFuture<SendReceipt>> sent = new ArrayList<>();
        for (JsonElement one : asked.getAsJsonArray("messages")) {
            try {
                Message message = message(one.getAsJsonObject());
                sent.add(isAtOnce
                    ? producer.sendAsync(message)
                    : CompletableFuture.completedFuture(producer.send(message)));
            } catch (Exception error) {
                sent.add(CompletableFuture.failedFuture(error));
            }
        }
        JsonArray receipts = new JsonArray();
        for (CompletableFuture<SendReceipt> one : sent) {
            try {
                receipts.add(receipt(one.get()));
            } catch (Exception error) {
                receipts.add(problem(error));
            }
        }
        JsonObject told = new JsonObject();
        told.add("receipts", receipts);
        return told;
    }

    private static JsonObject receipt(SendReceipt receipt) {
        JsonObject told = new JsonObject();
        told.addProperty("id", receipt.getMessageId().toString());
        told.addProperty("recall", receipt.getRecallHandle());
        return told;
    }

    private static JsonObject transact(JsonObject asked) throws ClientException {
        Producer producer = (Producer) CLIENTS.get(text(asked, "name"));
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message(asked.getAsJsonObject("message")), transaction);
        switch (text(asked, "end")) {
            case "commit":
                transaction.commit();
                break;
            case "rollback":
                transaction.rollback();
                break;
            default:
        }
        return receipt(receipt);
    }

    private static JsonObject recall(JsonObject asked) throws ClientException {
        Producer producer = (Producer) CLIENTS.get(text(asked, "name"));
        JsonObject told = new JsonObject();
        var receipt = producer.recallMessage(text(asked, "topic"), text(asked, "handle"));
        told.addProperty("id", receipt.getMessageId().toString());
        return told;
    }

    private static JsonObject receive(JsonObject asked) throws ClientException {
        JsonArray messages = new JsonArray();
        for (MessageView view : consumer(asked).receive(asked.get("most").getAsInt(), invisible(asked))) {
            messages.add(shown(view));
        }
        JsonObject told = new JsonObject();
        told.add("messages", messages);
        return told;
    }

    private static ClientConfiguration configuration(JsonObject asked) {
        var builder = ClientConfiguration.newBuilder()
            .setEndpoints(text(asked, "endpoints"))
            .enableSsl(asked.get("tls").getAsBoolean());
        if (!text(asked, "user").isEmpty()) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(text(asked, "user"), text(asked, "secret")));
        }
        return builder.build();
    }

    private static Map<String, FilterExpression> filters(JsonObject asked) {
        Map<String, FilterExpression> filters = new HashMap<>();
        for (JsonElement element : asked.getAsJsonArray("subscriptions")) {
            JsonObject one = element.getAsJsonObject();
            FilterExpression filter = FilterExpression.SUB_ALL;
            if (one.has("sql")) {
                filter = new FilterExpression(text(one, "sql"), FilterExpressionType.SQL92);
            } else if (one.has("tag")) {
                filter = new FilterExpression(text(one, "tag"), FilterExpressionType.TAG);
            }
            filters.put(text(one, "topic"), filter);
        }
        return filters;
    }

    private static Message message(JsonObject asked) {
        MessageBuilder builder = SERVICE.newMessageBuilder()
            .setTopic(text(asked, "topic"))
            .setBody(Base64.getDecoder().decode(text(asked, "body")));
        if (asked.has("tag")) {
            builder.setTag(text(asked, "tag"));
        }
        if (asked.has("keys")) {
            List<String> keys = new ArrayList<>();
            asked.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
            builder.setKeys(keys.toArray(new String[0]));
        }
        if (asked.has("properties")) {
            asked.getAsJsonObject("properties").entrySet()
                .forEach(one -> builder.addProperty(one.getKey(), one.getValue().getAsString()));
        }
        if (asked.has("group")) {
            builder.setMessageGroup(text(asked, "group"));
        }
        if (asked.has("lite")) {
            builder.setLiteTopic(text(asked, "lite"));
        }
        if (asked.has("at")) {
            builder.setDeliveryTimestamp(asked.get("at").getAsLong());
        }
        return builder.build();
    }

    private static JsonObject shown(MessageView view) {
        JsonObject told = new JsonObject();
        synchronized (RECEIVED) {
            told.addProperty("number", RECEIVED.size());
            RECEIVED.add(view);
        }
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        JsonArray keys = new JsonArray();
        view.getKeys().stream().sorted().forEach(keys::add);
        JsonObject properties = new JsonObject();
        view.getProperties().forEach(properties::addProperty);
        told.addProperty("topic", view.getTopic());
        told.addProperty("body", Base64.getEncoder().encodeToString(body));
        told.addProperty("tag", view.getTag().orElse(null));
        told.add("keys", keys);
        told.add("properties", properties);
        told.addProperty("group", view.getMessageGroup().orElse(null));
        told.addProperty("lite", view.getLiteTopic().orElse(null));
        told.addProperty("id", view.getMessageId().toString());
        told.addProperty("attempt", view.getDeliveryAttempt());
        return told;
    }

    private static JsonObject problem(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException)
            && cause.getCause() != null) {
            cause = cause.getCause();
        }
        JsonObject told = new JsonObject();
        String text = cause.toString();
        told.addProperty("error", text);
        told.add("code", JsonNull.INSTANCE);
        int at = text.indexOf("response-code=");
        if (at >= 0) {
            String rest = text.substring(at + "response-code=".length());
            told.addProperty("code", Integer.valueOf(rest.split("[^0-9]", 2)[0]));
        }
        return told;
    }

    private static SimpleConsumer consumer(JsonObject asked) {
        return (SimpleConsumer) CLIENTS.get(text(asked, "name"));
    }

    private static LitePushConsumer lite(String name) {
        return (LitePushConsumer) CLIENTS.get(name);
    }

    private static MessageView taken(JsonObject asked) {
        synchronized (RECEIVED) {
            return RECEIVED.get(asked.get("number").getAsInt());
        }
    }

    private static Duration invisible(JsonObject asked) {
        return Duration.ofSeconds(asked.get("invisible_s").getAsInt());
    }

    private static int number(MessageView view, String name) {
        return Integer.parseInt(view.getProperties().getOrDefault(name, "0"));
    }

    private static String text(JsonObject asked, String name) {
        return asked.get(name).getAsString();
    }

    private static void tell(JsonObject told) {
        synchronized (OUT) {
            OUT.println(told);
            OUT.flush();
        }
    }
}
