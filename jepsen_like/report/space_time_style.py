"""How a space-time diagram looks, beyond the style that all reports share."""

SPACE_TIME_STYLE = """
:root { --follower: #9fb0c3; --candidate: #e0a63c; --leader: #3d8a6b; --votes: #b5791a;
  --entries: #2d6cb5; }
@media (prefers-color-scheme: dark) { :root { --follower: #56677b; --candidate: #c99238;
  --leader: #55b28c; --votes: #e0ab4a; --entries: #69a5e8; } }
.key.follower::before { background: var(--follower); }
.key.candidate::before { background: var(--candidate); }
.key.leader::before { background: var(--leader); }
.key.frozen::before { background: repeating-linear-gradient(0deg, var(--ink) 0 1px,
  var(--follower) 1px 4px); }
.key.down::before { background: none; border-left: 2px dashed var(--soft); border-radius: 0;
  width: 4px; }
.key.lost::before { background: none; border-top: 2px dashed var(--info); height: 4px;
  border-radius: 0; vertical-align: 3px; width: 20px; }
.member-band { fill: var(--follower); } .member-band.candidate { fill: var(--candidate); }
.member-band.leader { fill: var(--leader); } .member-band.odd { opacity: 0.75; }
.member-band.frozen { fill-opacity: 0.35; stroke: var(--ink); stroke-dasharray: 2 3; }
.life { stroke: var(--soft); stroke-dasharray: 3 5; stroke-width: 1.5; }
.cross { stroke: var(--info); stroke-width: 3; } .cross.small { stroke-width: 1.8; }
.message { stroke-width: 1.2; stroke: var(--soft); }
.message.entries { stroke: var(--entries); } .head.entries { fill: var(--entries); }
.message.votes { stroke: var(--votes); } .head.votes { fill: var(--votes); }
.message.idle, .head.idle { opacity: 0.35; }
.message.lost { stroke: var(--info); stroke-dasharray: 4 3; }
.head { fill: var(--soft); }
.asked { stroke: var(--soft); stroke-width: 0.8; stroke-dasharray: 1 3; }
.mark { fill: var(--ink); }
rect.call.open { fill: var(--soft); }
.note { stroke-width: 1; stroke: var(--fail); stroke-dasharray: 7 4; }
.note.broken { stroke: var(--info); stroke-width: 2; stroke-dasharray: none; }
svg text { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
svg .said { fill: var(--soft); } svg .role.down { fill: var(--info); }
svg .answer { fill: var(--soft); } svg .answer.info { fill: var(--info); }
svg .note-text { fill: var(--fail); } svg .note-text.broken { fill: var(--info); }
@media print { .picture svg { min-width: 0 !important; } }
"""
