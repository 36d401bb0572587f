-- Messages that a group was given again, or that died: how often each of the five things happened.
-- Sent back: a consumer failed, and a copy waits in the ladder (`waiting` of them do, until
-- `due_time`). Delivered again: the copy came to %RETRY%GROUP, or a pop gave the message once more.
-- Dead: a copy is in %DLQ%GROUP. Redriven: an operator had a dead letter delivered once more, which
-- is no retry. `given` is how often pops gave it, null for a group that does not pop.
with delays as (
    select
        e.raft_group,
        e.position,
        max(e.due_time) as due_time,
        max(case when e.event in ('delivered', 'dropped') then 1 else 0 end) as is_over
    from delay_events e
    group by e.raft_group, e.position
),
delay_steps as (
    select distinct e.raft_group, e.index, e.event from delay_events e where e.event in ('delivered', 'moved')
),
redriven as (
    select distinct r.raft_group, r.index from redrives r
),
letters as (
    select r.raft_group, r.topic, r.topic_life, r.queue, r.offset, count(*) as times
    from redrives r
    group by r.raft_group, r.topic, r.topic_life, r.queue, r.offset
),
-- Copies that wait in the ladder. One that was moved, because retention drops it, waits on.
ladder as (
    select
        m.raft_group,
        substr(m.properties['REAL_TOPIC'], 8) as consumer_group,
        coalesce(m.properties['ORIGIN_MESSAGE_ID'], m.message_id) as origin_message_id,
        m.properties['RETRY_TOPIC'] as topic,
        m.unique_key,
        m.reconsume_times,
        m.store_time as time,
        1 as sent_back,
        case when d.is_over = 0 then 1 else 0 end as waiting,
        case when d.is_over = 0 then d.due_time end as due_time,
        0 as delivered_again,
        0 as dead,
        0 as redriven,
        cast(null as bigint) as given
    from messages m
    left join delays d
        on d.position = m.physical_offset and d.raft_group is not distinct from m.raft_group
    left join delay_steps s
        on s.index = m.index and s.event = 'moved' and s.raft_group is not distinct from m.raft_group
    where m.topic in ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer')
        and substr(m.properties['REAL_TOPIC'], 1, 7) = '%RETRY%' and s.index is null
),
-- A client may put a copy there itself, without the ladder.
copies as (
    select
        m.raft_group,
        substr(m.topic, 8) as consumer_group,
        coalesce(m.properties['ORIGIN_MESSAGE_ID'], m.message_id) as origin_message_id,
        m.properties['RETRY_TOPIC'] as topic,
        m.unique_key,
        m.reconsume_times,
        m.store_time as time,
        case when s.index is null then 1 else 0 end as sent_back,
        0 as waiting,
        case when false then m.store_time end as due_time,
        1 as delivered_again,
        0 as dead,
        0 as redriven,
        cast(null as bigint) as given
    from messages m
    left join delay_steps s
        on s.index = m.index and s.event = 'delivered' and s.raft_group is not distinct from m.raft_group
    left join redriven r on r.index = m.index and r.raft_group is not distinct from m.raft_group
    where substr(m.topic, 1, 7) = '%RETRY%' and r.index is null
),
dead as (
    select
        m.raft_group,
        substr(m.topic, 6) as consumer_group,
        coalesce(m.properties['ORIGIN_MESSAGE_ID'], m.properties['DLQ_ORIGIN_MESSAGE_ID'])
            as origin_message_id,
        coalesce(m.properties['RETRY_TOPIC'], m.properties['DLQ_ORIGIN_TOPIC']) as topic,
        m.unique_key,
        m.reconsume_times,
        m.store_time as time,
        0 as sent_back,
        0 as waiting,
        case when false then m.store_time end as due_time,
        0 as delivered_again,
        1 as dead,
        coalesce(l.times, 0) as redriven,
        cast(null as bigint) as given
    from messages m
    left join letters l
        on l.topic = m.topic and l.topic_life = m.topic_life and l.queue = m.queue and l.offset = m.offset
        and l.raft_group is not distinct from m.raft_group
    where substr(m.topic, 1, 5) = '%DLQ%' and m.properties['ORIGIN_MESSAGE_ID'] is not null
),
pops as (
    select
        e.raft_group,
        e.consumer_group,
        e.topic,
        e.topic_life,
        e.queue,
        e.offset,
        min(e.time) as first_time,
        max(e.time) as last_time,
        count(*) filter (where e.event = 'given') as given
    from pop_events e
    group by e.raft_group, e.consumer_group, e.topic, e.topic_life, e.queue, e.offset
    having count(*) filter (where e.event = 'given') > 1 or count(*) filter (where e.event = 'buried') > 0
),
popped as (
    select
        p.raft_group,
        p.consumer_group,
        coalesce(m.properties['ORIGIN_MESSAGE_ID'], m.message_id) as origin_message_id,
        coalesce(m.properties['RETRY_TOPIC'], p.topic) as topic,
        m.unique_key,
        cast(null as integer) as reconsume_times,
        p.first_time,
        p.last_time,
        p.given
    from pops p
    join messages m
        on m.topic = p.topic and m.topic_life = p.topic_life and m.queue = p.queue and m.offset = p.offset
        and m.raft_group is not distinct from p.raft_group
),
steps as (
    select l.*, l.time as last_time from ladder l
    union all
    select c.*, c.time as last_time from copies c
    union all
    select d.*, d.time as last_time from dead d
    union all
    select
        o.raft_group,
        o.consumer_group,
        o.origin_message_id,
        o.topic,
        o.unique_key,
        o.reconsume_times,
        o.first_time as time,
        0 as sent_back,
        0 as waiting,
        case when false then o.first_time end as due_time,
        o.given - 1 as delivered_again,
        0 as dead,
        0 as redriven,
        o.given,
        o.last_time
    from popped o
)
select
    s.raft_group,
    s.consumer_group,
    s.topic,
    s.origin_message_id,
    max(s.unique_key) as unique_key,
    cast(sum(s.sent_back) as bigint) as sent_back,
    cast(sum(s.waiting) as bigint) as waiting,
    min(s.due_time) as due_time,
    cast(sum(s.delivered_again) as bigint) as delivered_again,
    cast(sum(s.given) as bigint) as given,
    cast(sum(s.dead) as bigint) as dead,
    cast(sum(s.redriven) as bigint) as redriven,
    max(s.reconsume_times) as reconsume_times,
    min(s.time) as first_time,
    max(s.last_time) as last_time
from steps s
group by s.raft_group, s.consumer_group, s.topic, s.origin_message_id
