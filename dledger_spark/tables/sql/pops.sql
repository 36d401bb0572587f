-- Each message that a group has popped: how often, until it was acknowledged or buried. The log's
-- order says what came last: behind a reset a message that was acknowledged is given again. The end
-- carries no time, and leaders' clocks differ, so it is no earlier than all that came before.
with steps as (
    select
        e.raft_group,
        e.consumer_group,
        e.topic,
        e.topic_life,
        e.queue,
        e.offset,
        count(*) filter (where e.event = 'given') as times,
        count(*) filter (where e.event = 'hidden') as hidden,
        min(e.time) as first_time,
        max_by(e.time, e.index) filter (where e.event = 'given') as last_given_time,
        max(e.time) as newest_time,
        max_by(e.event, e.index) as last_event
    from pop_events e
    group by e.raft_group, e.consumer_group, e.topic, e.topic_life, e.queue, e.offset
)
select
    s.raft_group,
    s.consumer_group,
    s.topic,
    s.topic_life,
    s.queue,
    s.offset,
    s.times,
    s.hidden,
    s.first_time,
    s.last_given_time,
    case when s.last_event = 'acknowledged' then s.newest_time end as acknowledged_time,
    case when s.last_event = 'buried' then s.newest_time end as buried_time,
    case when s.last_event in ('acknowledged', 'buried') then s.last_event else 'out' end as outcome
from steps s
