//! Which groups a tick is for.
//!
//! Each group names the next tick on which it must be called; all others pass it by. Thousands
//! of idle groups then cost what their heartbeats cost, not a visit each every 10 ms. A group
//! remembers itself under which tick it was filed, and what comes up under another is passed over.

use biplane_vsr::WakeWheel;
use biplane_wire::GroupId;

/// Groups by the tick they wait for.
pub(crate) type Schedule = WakeWheel<GroupId>;
