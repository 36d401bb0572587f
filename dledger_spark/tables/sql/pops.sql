-- Each message that a group has popped: how often, until it was acknowledged or buried.
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
    max(case when e.event = 'given' then e.time end) as last_given_time,
    max(case when e.event = 'acknowledged' then e.time end) as acknowledged_time,
    max(case when e.event = 'buried' then e.time end) as buried_time,
    case
        when max(case when e.event = 'acknowledged' then 1 else 0 end) = 1 then 'acknowledged'
        when max(case when e.event = 'buried' then 1 else 0 end) = 1 then 'buried'
        else 'out'
    end as outcome
from pop_events e
group by e.raft_group, e.consumer_group, e.topic, e.topic_life, e.queue, e.offset
