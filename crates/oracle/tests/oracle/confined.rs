//! What commands may touch when they are confined.

use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_oracle::{
    Confinement, DeniedAccess, Oracle, OracleError, OracleSettings, PathMode, ProcessMode,
    RecoveryPlan, Slot,
};

use crate::servers::tcp;
use crate::support::{Place, WAYS, failure, is_success, output, recovery, settings, shell};

/// The ways in which there is a mount namespace.
const CONFINED: [(PathMode, ProcessMode); 3] = [WAYS[0], WAYS[1], WAYS[2]];

fn confined(way: (PathMode, ProcessMode), writable: &[PathBuf]) -> OracleSettings {
    OracleSettings {
        confinement: Some(Confinement {
            writable: writable.to_vec(),
            ..Confinement::default()
        }),
        ..settings(way)
    }
}

fn slot_with(place: &Place, plan: &RecoveryPlan, settings: OracleSettings) -> Slot {
    let oracle = Oracle::new(plan.clone(), settings).unwrap();
    let slot = oracle.slot(&[place.mapping()]).unwrap();
    assert_eq!(slot.isolation().reasons, Vec::<String>::new());
    slot
}

/// Runs a script three times, confined; each time it must succeed.
#[track_caller]
fn succeeds(place: &Place, script: &str, writable: &[PathBuf]) {
    for way in CONFINED {
        let mut slot = slot_with(place, &shell(script), confined(way, writable));
        for _ in 0..3 {
            let verdict = slot.run().unwrap();
            assert!(is_success(&verdict), "{way:?}: {verdict:?}");
        }
    }
}

#[test]
fn only_pools_and_what_is_named_can_be_written() {
    let place = Place::new();
    std::fs::write(place.path("elsewhere/file"), "old").unwrap();
    std::fs::create_dir(place.path("named")).unwrap();
    let elsewhere = place.path("elsewhere");
    let elsewhere = elsewhere.display();
    let script = format!(
        "echo changed > {{pool}} || exit 10
         echo x > {elsewhere}/new && exit 11
         echo x > {elsewhere}/file && exit 12
         rm {elsewhere}/file && exit 13
         echo x > {}/file || exit 14
         exit 0",
        place.path("named").display()
    );
    succeeds(&place, &script, &[place.path("named")]);
    assert!(!place.path("elsewhere/new").exists());
    let kept = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(kept("elsewhere/file"), "old");
    assert_eq!(kept("named/file"), "x\n");
    assert_eq!(kept("image/pool"), "changed\n");
    assert_eq!(kept("pools/pool"), "pool");
}

#[test]
fn a_path_that_is_named_must_exist() {
    let place = Place::new();
    let missing = place.path("missing");
    let oracle = Oracle::new(
        shell("true"),
        confined(WAYS[0], std::slice::from_ref(&missing)),
    );
    let Err(OracleError::Path { path, .. }) = oracle else {
        panic!("accepted");
    };
    assert_eq!(path, missing);
}

#[test]
fn temporary_files_are_private_and_gone_in_the_next_run() {
    let place = Place::new();
    let name = format!("powerfail-test-{}", std::process::id());
    for directory in ["/tmp", "/var/tmp", "/dev/shm"] {
        let script = format!(
            "test ! -e {directory}/{name} || exit 10
             mkdir -p {directory}/{name}/deep || exit 11
             echo x > {directory}/{name}/deep/file || exit 12
             test -e {directory}/{name}/deep/file"
        );
        succeeds(&place, &script, &[]);
        assert!(!Path::new(directory).join(&name).exists());
    }
}

#[test]
fn directories_of_other_powerfails_are_not_shown() {
    let place = Place::new();
    let other = tempfile::Builder::new()
        .prefix("powerfail-other-")
        .tempdir_in("/dev/shm")
        .unwrap();
    let script = "set -- /dev/shm/powerfail-other-*; test ! -e \"$1\"";
    succeeds(&place, script, &[]);
    assert!(other.path().exists());
}

#[test]
fn root_can_change_neither_the_machine_nor_its_disks() {
    let place = Place::new();
    let script = "for device in /dev/*; do
            if test -b $device; then head -c 1 $device && exit 10; fi
        done
        echo 3 > /proc/sys/vm/drop_caches && exit 11
        echo x > /etc/powerfail-test && exit 12
        echo x > /dev/null || exit 13
        head -c 1 /dev/urandom > /dev/null || exit 14
        echo 500 > /proc/self/oom_score_adj || exit 15
        exit 0";
    succeeds(&place, script, &[]);
}

#[test]
fn servers_and_clients_share_a_network_of_their_own() {
    let place = Place::new();
    let plan = tcp();
    std::fs::write(place.private(), "good").unwrap();
    for way in CONFINED {
        let verdict = slot_with(&place, &plan, confined(way, &[])).run().unwrap();
        assert!(is_success(&verdict), "{way:?}: {verdict:?}");
    }
    let mut slot = slot_with(
        &place,
        &recovery("open={pool} connect exit=0"),
        confined(WAYS[0], &[]),
    );
    assert!(is_success(&slot.run().unwrap()));
    let denied = slot.denied_accesses().unwrap();
    assert_eq!(denied, [(DeniedAccess::Network, 1)]);
}

#[test]
fn shared_memory_of_others_is_out_of_reach() {
    let place = Place::new();
    let made = Command::new("ipcmk").args(["-M", "64"]).output().unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    let id = text.trim().rsplit(' ').next().unwrap();
    succeeds(&place, &format!("ipcrm -m {id} && exit 10; exit 0"), &[]);
    let removed = Command::new("ipcrm").args(["-m", id]).status();
    assert!(removed.unwrap().success(), "{id}");
}

/// A power failure leaves none of it.
#[test]
fn shared_memory_of_a_run_is_gone_in_the_next_one() {
    let place = Place::new();
    let script = "test \"$(ipcs -m -s -q | grep -c ^0x)\" = 0 || exit 10
        ipcmk -M 64 -S 1 -Q || exit 11
        test \"$(ipcs -m -s -q | grep -c ^0x)\" = 3 || exit 12";
    for way in CONFINED {
        let mut slot = slot_with(&place, &shell(script), confined(way, &[]));
        for _ in 0..2 {
            let verdict = slot.run().unwrap();
            assert!(is_success(&verdict), "{way:?}: {verdict:?}");
        }
    }
}

/// Memory that no process has for itself counts as well.
#[test]
fn a_recovery_that_fills_the_memory_with_files_is_ended() {
    let place = Place::new();
    for directory in ["/tmp", "/dev/shm"] {
        let script = format!("head -c 50000000 /dev/zero > {directory}/fill; sleep 1111");
        let mut settings = confined(WAYS[0], &[]);
        if let Some(confinement) = &mut settings.confinement {
            confinement.memory_bytes = Some(40 << 20);
        }
        let mut slot = slot_with(&place, &shell(&script), settings);
        let failed = failure(slot.run().unwrap());
        assert!(
            output(&failed).contains("MiB of memory, more than 40 MiB"),
            "{failed:?}"
        );
    }
}

#[test]
fn what_is_denied_is_told() {
    let place = Place::new();
    std::fs::write(place.path("elsewhere/file"), "old").unwrap();
    let elsewhere = place.path("elsewhere");
    let script = format!(
        "cd {}; echo x > new; echo x >> file; echo x >> file; mkdir made; exit 0",
        elsewhere.display()
    );
    for way in CONFINED {
        let mut slot = slot_with(&place, &shell(&script), confined(way, &[]));
        let write = |name: &str| DeniedAccess::Write(elsewhere.join(name));
        let expected = [(write("file"), 2), (write("made"), 1), (write("new"), 1)];
        assert_eq!(slot.denied_accesses().unwrap(), expected, "{way:?}");
    }
    let mut free = slot_with(&place, &shell("exit 0"), settings(WAYS[0]));
    assert_eq!(free.denied_accesses().unwrap(), []);
}

/// The only way without any namespace: Landlock takes the place of mounts.
#[test]
fn without_a_mount_namespace_landlock_confines() {
    let place = Place::new();
    std::fs::write(place.path("elsewhere/file"), "old").unwrap();
    std::fs::create_dir(place.path("named")).unwrap();
    let elsewhere = place.path("elsewhere");
    let shown = elsewhere.display();
    let script = format!(
        "echo changed > {{pool}} || exit 10
         echo x > {shown}/new && exit 11
         echo x >> {shown}/file && exit 12
         rm {shown}/file && exit 13
         mv {shown}/file $TMPDIR/file && exit 14
         echo x > {}/file || exit 15
         test ! -e $TMPDIR/old || exit 16
         echo x > $TMPDIR/old || exit 17
         echo x > /dev/null || exit 18
         cat {shown}/file || exit 19
         exit 0",
        place.path("named").display()
    );
    let named = place.path("named");
    let oracle = Oracle::new(shell(&script), confined(WAYS[3], &[named])).unwrap();
    let mut slot = oracle.slot(&[place.mapping()]).unwrap();
    for _ in 0..3 {
        let verdict = slot.run().unwrap();
        assert!(is_success(&verdict), "{verdict:?}");
    }
    let kept = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(kept("elsewhere/file"), "old");
    assert_eq!(kept("named/file"), "x\n");
    assert_eq!(kept("image/pool"), "changed\n");
    assert!(!place.path("elsewhere/new").exists());
    let reasons = slot.isolation().reasons.join("\n");
    assert!(reasons.contains("confined by Landlock only"), "{reasons}");
    let denied = slot.denied_accesses().unwrap();
    let is_denied = |name: &str| {
        let wanted = DeniedAccess::Write(elsewhere.join(name));
        denied.iter().any(|(it, _)| *it == wanted)
    };
    assert!(is_denied("new") && is_denied("file"), "{denied:?}");
}

#[test]
fn a_recovery_that_starts_too_many_processes_is_ended() {
    let place = Place::new();
    let script = "i=0; while test $i -lt 1100; do sleep 1111 & i=$((i + 1)); done; wait";
    let mut slot = slot_with(&place, &shell(script), confined(WAYS[0], &[]));
    let failed = failure(slot.run().unwrap());
    assert!(
        output(&failed).contains("processes, more than 1000"),
        "{failed:?}"
    );
}
