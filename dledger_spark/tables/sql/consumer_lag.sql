-- What a consumer group has not consumed of a queue at the end of each minute: messages, and the age
-- of the first of them. The group is known from its first progress on. Lag is a state, so there is a
-- row for each minute in which the queue or the group moved, and for every minute while something
-- waits, up to the last one that the log knows: that of the newest time of its messages and commands
-- ("now"). RocketMQ: rocketmq_consumer_lag_messages, rocketmq_consumer_lag_latency.
--
-- Of a group that pops, those messages count that are not acknowledged, wherever they are, and those
-- that were never given. `lag_ms` is null if the first waiting message is not among the facts:
-- retention removed it before the log was read. Its age at any later time follows from
-- `waiting_since`.
--
-- A queue that nothing moves for long gets a row for each minute of a day (1440), then for each hour
-- of a year (8760), and one for the last minute: a group that is gone for good, or a leader whose
-- clock was years ahead, would have a row for every minute of that time otherwise.
--
-- Rows from a minute on are a function of the facts from there on and of the state at its beginning:
-- of each queue the largest offset before; of each group and queue the steps of consumer_progress and
-- of pop_progress with the largest indexes before, the message that waits first by them, and when
-- the queue or the group moved last.
with ends as (
    select
        m.raft_group,
        m.topic,
        m.topic_life,
        m.queue,
        date_trunc('minute', m.store_time) as minute,
        max(m.offset) + 1 as queue_end
    from messages m
    where m.store_time is not null
    group by m.raft_group, m.topic, m.topic_life, m.queue, date_trunc('minute', m.store_time)
),
steps as (
    select
        p.raft_group,
        p.consumer_group,
        p.topic,
        p.topic_life,
        p.queue,
        date_trunc('minute', p.time) as minute,
        p.index as move,
        cast(null as bigint) as popped
    from consumer_progress p
    where p.time is not null
    union all
    select
        o.raft_group,
        o.consumer_group,
        o.topic,
        o.topic_life,
        o.queue,
        date_trunc('minute', o.time) as minute,
        cast(null as bigint) as move,
        o.index as popped
    from pop_progress o
    where o.time is not null
),
moves as (
    select
        s.raft_group,
        s.consumer_group,
        s.topic,
        s.topic_life,
        s.queue,
        s.minute,
        max(s.move) as move,
        max(s.popped) as popped
    from steps s
    group by s.raft_group, s.consumer_group, s.topic, s.topic_life, s.queue, s.minute
),
readers as (
    select
        v.raft_group,
        v.consumer_group,
        v.topic,
        v.topic_life,
        v.queue,
        min(v.minute) as since
    from moves v
    group by v.raft_group, v.consumer_group, v.topic, v.topic_life, v.queue
),
minutes as (
    select v.raft_group, v.consumer_group, v.topic, v.topic_life, v.queue, v.minute from moves v
    union
    select r.raft_group, r.consumer_group, r.topic, r.topic_life, r.queue, e.minute
    from readers r
    join ends e
        on e.topic = r.topic and e.topic_life = r.topic_life and e.queue = r.queue and e.minute >= r.since
        and e.raft_group is not distinct from r.raft_group
),
known as (
    select
        n.raft_group,
        n.consumer_group,
        n.topic,
        n.topic_life,
        n.queue,
        n.minute,
        max(v.move) over (
            partition by n.raft_group, n.consumer_group, n.topic, n.topic_life, n.queue
            order by n.minute
            rows between unbounded preceding and current row
        ) as move,
        max(v.popped) over (
            partition by n.raft_group, n.consumer_group, n.topic, n.topic_life, n.queue
            order by n.minute
            rows between unbounded preceding and current row
        ) as popped,
        lead(n.minute) over (
            partition by n.raft_group, n.consumer_group, n.topic, n.topic_life, n.queue
            order by n.minute
        ) as next_minute
    from minutes n
    left join moves v
        on v.consumer_group = n.consumer_group and v.topic = n.topic and v.topic_life = n.topic_life and v.queue = n.queue
        and v.minute = n.minute and v.raft_group is not distinct from n.raft_group
),
queues as (
    select e.raft_group, e.topic, e.topic_life, e.queue, e.minute, e.queue_end from ends e
    union all
    select distinct k.raft_group, k.topic, k.topic_life, k.queue, k.minute, cast(null as bigint) from known k
),
filled as (
    select
        q.raft_group,
        q.topic,
        q.topic_life,
        q.queue,
        q.minute,
        max(q.queue_end) over (
            partition by q.raft_group, q.topic, q.topic_life, q.queue
            order by q.minute
            range between unbounded preceding and current row
        ) as queue_end
    from queues q
),
reached as (
    select f.raft_group, f.topic, f.topic_life, f.queue, f.minute, max(f.queue_end) as queue_end
    from filled f
    group by f.raft_group, f.topic, f.topic_life, f.queue, f.minute
),
times as (
    select m.raft_group, max(m.store_time) as time from messages m group by m.raft_group
    union all
    select c.raft_group, max(c.time) as time from commands c group by c.raft_group
    union all
    -- An acknowledgement has no time of its own, and counts as no earlier than the pop.
    select e.raft_group, max(e.time) as time from pop_events e group by e.raft_group
),
log_ends as (
    select t.raft_group, unix_millis(max(t.time)) as ms from times t group by t.raft_group
),
states as (
    select
        k.raft_group,
        k.consumer_group,
        k.topic,
        k.topic_life,
        k.queue,
        unix_millis(k.minute) as minute_ms,
        unix_millis(k.next_minute) as next_ms,
        l.ms as now_ms,
        case when o.offset is null then p.offset else o.offset end as consumer_offset,
        coalesce(r.queue_end, 0) as queue_end,
        case
            when o.offset is null then greatest(coalesce(r.queue_end, 0) - p.offset, 0)
            else o.unacknowledged + greatest(coalesce(r.queue_end, 0) - o.next_offset, 0)
        end as lag_messages
    from known k
    join consumer_progress p
        on p.index = k.move and p.consumer_group = k.consumer_group and p.topic = k.topic
        and p.topic_life = k.topic_life
        and p.queue = k.queue and p.raft_group is not distinct from k.raft_group
    left join pop_progress o
        on o.index = k.popped and o.consumer_group = k.consumer_group and o.topic = k.topic
        and o.topic_life = k.topic_life
        and o.queue = k.queue and o.raft_group is not distinct from k.raft_group
    left join reached r
        on r.topic = k.topic and r.topic_life = k.topic_life and r.queue = k.queue and r.minute = k.minute
        and r.raft_group is not distinct from k.raft_group
    join log_ends l on l.raft_group is not distinct from k.raft_group
    where p.offset is not null
),
-- A state lasts for so many minutes behind its first one. (Of a log that lost entries several
-- messages may have one offset: the topic was deleted meanwhile. The last one counts.)
stretches as (
    select
        s.raft_group,
        s.consumer_group,
        s.topic,
        s.topic_life,
        s.queue,
        s.minute_ms,
        s.now_ms,
        s.consumer_offset,
        s.queue_end,
        s.lag_messages,
        max_by(m.store_time, m.index) as waiting_since,
        case
            when s.lag_messages = 0 then cast(0 as bigint)
            when s.next_ms is not null then cast(floor((s.next_ms - s.minute_ms) / 60000) - 1 as bigint)
            else greatest(cast(floor((s.now_ms - s.minute_ms) / 60000) as bigint), 0)
        end as more
    from states s
    left join messages m
        on m.topic = s.topic and m.topic_life = s.topic_life and m.queue = s.queue
        and m.offset = s.consumer_offset and s.lag_messages > 0
        and unix_millis(m.store_time) < s.minute_ms + 60000
        and m.raft_group is not distinct from s.raft_group
    group by
        s.raft_group, s.consumer_group, s.topic, s.topic_life, s.queue, s.minute_ms, s.next_ms,
        s.now_ms, s.consumer_offset, s.queue_end, s.lag_messages
),
measured as (
    select
        t.*,
        least(greatest(cast(floor((t.more - 1440) / 60) as bigint), 0), cast(8760 as bigint)) as hours
    from stretches t
),
carried as (
    select
        t.*,
        explode(
            sequence(
                cast(0 as bigint),
                least(t.more, 1440) + t.hours + case when t.more > 1440 + t.hours * 60 then 1 else 0 end,
                cast(1 as bigint)
            )
        ) as place
    from measured t
),
placed as (
    select
        c.*,
        case
            when c.place <= 1440 then c.place
            when c.place <= 1440 + c.hours then 1440 + (c.place - 1440) * 60
            else c.more
        end as after
    from carried c
)
select
    c.raft_group,
    c.consumer_group,
    c.topic,
    c.topic_life,
    c.queue,
    timestamp_millis(c.minute_ms + c.after * 60000) as minute,
    c.consumer_offset,
    c.queue_end,
    c.lag_messages,
    case
        when c.lag_messages = 0 then 0
        when c.waiting_since is null then null
        else greatest(
            least(c.minute_ms + c.after * 60000 + 60000, greatest(c.now_ms, c.minute_ms))
                - unix_millis(c.waiting_since),
            0
        )
    end as lag_ms,
    c.waiting_since
from placed c
