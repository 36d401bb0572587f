import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * One member of a Java DLedger group: Member ID PEERS FOLDER WORKLOAD. The one that leads makes the load in its own process.
 * Without WORKLOAD it serves until standard input ends.
 */
public final class Member {
    static final String GROUP = "bench";
    /** So long one must lead before the load begins: the first elections of a new group may be two. */
    private static final int SETTLED_MS = 1_000;
    private static final long CHECK_MS = 20;
    /** With thousands in flight at once, a cold virtual machine lets all of them time out, and then the next. */
    private static final int AT_FIRST = 256;
    private static final long AFTER_FAILURE_MS = 100;

    private final DLedgerServer server;
    private final JSONObject work;
    private final Took took = new Took();
    private final ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();

    private Member(DLedgerServer server, JSONObject work) {
        this.server = server;
        this.work = work;
    }

    /** Peers as Java DLedger wants them: n0-host:port;n1-host:port. */
    static String peers(String json) {
        Map<String, Object> byId = new TreeMap<>(JSON.parseObject(json));
        return byId.entrySet().stream().map(each -> each.getKey() + "-" + each.getValue()).collect(Collectors.joining(";"));
    }

    public static void main(String[] args) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setSelfId(args[0]);
        config.setGroup(GROUP);
        config.setPeers(peers(args[1]));
        config.setStoreBaseDir(args[2]);
        NettyServerConfig listening = new NettyServerConfig();
        listening.setBindAddress("127.0.0.1");
        DLedgerServer server = new DLedgerServer(config, listening, new NettyClientConfig());
        server.startup();
        if (args.length < 4) {
            awaitEndOfInput();
        }
        Member member = new Member(server, JSON.parseObject(args[3]));
        if (member.leads()) {
            member.load();
        } else {
            awaitEndOfInput();
        }
        Runtime.getRuntime().halt(0); // its own threads never end
    }

    private static void awaitEndOfInput() throws IOException {
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    /** Waits until one member has led for a while; whether it is this one. */
    private boolean leads() throws InterruptedException {
        String leader = null;
        long since = System.nanoTime();
        while (leader == null || System.nanoTime() - since < SETTLED_MS * 1_000_000L) {
            Thread.sleep(CHECK_MS);
            String now = server.getMemberState().getLeaderId();
            if (now == null || !now.equals(leader)) {
                leader = now;
                since = System.nanoTime();
            }
        }
        return server.isLeader();
    }

    private void load() throws InterruptedException {
        byte[] body = new byte[work.getIntValue("body_bytes")];
        int inFlight = work.getIntValue("in_flight");
        Semaphore room = new Semaphore(Math.min(inFlight, AT_FIRST));
        Thread appending = new Thread(() -> {
            while (true) {
                room.acquireUninterruptibly();
                append(body, room);
            }
        });
        appending.setDaemon(true);
        appending.start();
        long warmUpMs = (long) (work.getDoubleValue("warm_up_s") * 1_000);
        long began = System.nanoTime();
        for (int there = AT_FIRST; there < inFlight; there += AT_FIRST) {
            Thread.sleep(warmUpMs / 2 * AT_FIRST / inFlight);
            room.release(Math.min(AT_FIRST, inFlight - there));
        }
        Thread.sleep(Math.max(0, warmUpMs - (System.nanoTime() - began) / 1_000_000));
        took.begin();
        long measuredFrom = System.nanoTime();
        Thread.sleep((long) (work.getDoubleValue("seconds") * 1_000));
        JSONObject result = took.end((System.nanoTime() - measuredFrom) / 1e9);
        System.err.println("failed, by code: " + took.codes());
        System.out.println(result.toJSONString());
        System.out.flush();
    }

    private void append(byte[] body, Semaphore room) {
        AppendEntryRequest request = new AppendEntryRequest();
        request.setGroup(GROUP);
        request.setRemoteId(server.getMemberState().getSelfId());
        request.setBody(body);
        long began = System.nanoTime();
        try {
            server.handleAppend(request).whenComplete((answer, error) -> {
                answered(began, error == null ? answer.getCode() : DLedgerResponseCode.UNKNOWN.getCode(), room);
            });
        } catch (IOException | RuntimeException error) {
            answered(began, DLedgerResponseCode.UNKNOWN.getCode(), room);
        }
    }

    private void answered(long began, int code, Semaphore room) {
        if (code == DLedgerResponseCode.SUCCESS.getCode()) {
            took.acknowledged(began);
            room.release();
        } else {
            took.failed(code);
            // What timed out still waits inside: more at once would only make that longer.
            later.schedule(() -> room.release(), AFTER_FAILURE_MS, TimeUnit.MILLISECONDS);
        }
    }

    /** How long appends took, in the measured time alone. */
    private static final class Took {
        private boolean open;
        private long[] nanoseconds = new long[1 << 20];
        private int count;
        private long failed;
        private final Map<Integer, Long> codes = new TreeMap<>();

        synchronized void begin() {
            open = true;
        }

        synchronized void acknowledged(long began) {
            if (!open) {
                return;
            }
            if (count == nanoseconds.length) {
                nanoseconds = Arrays.copyOf(nanoseconds, 2 * count);
            }
            nanoseconds[count++] = System.nanoTime() - began;
        }

        synchronized void failed(int code) {
            codes.merge(code, 1L, Long::sum);
            failed += open ? 1 : 0;
        }

        synchronized String codes() {
            return codes.toString();
        }

        synchronized JSONObject end(double seconds) {
            open = false;
            Arrays.sort(nanoseconds, 0, count);
            JSONObject result = new JSONObject();
            result.put("entries_per_s", count / seconds);
            result.put("failed", failed);
            if (count > 0) {
                result.put("median_ms", nanoseconds[count / 2] / 1e6);
                result.put("p99_ms", nanoseconds[(int) (count * 99L / 100)] / 1e6);
            }
            return result;
        }
    }
}
