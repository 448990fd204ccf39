//! What recovery sees at the pool's path, and what it cannot reach.

use std::path::PathBuf;

use powerfail_oracle::{CommandLine, Oracle, OracleError, PathMode, PoolMapping, Slot};

use crate::support::{Place, WAYS, failure, is_success, output, plan, settings, shell};

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

#[test]
fn a_hard_coded_path_leads_to_the_image() {
    let place = Place::new();
    let before = mounts();
    for way in &WAYS[..2] {
        let path = place.original();
        let script = format!(
            "test $(cat {0}) = image && printf done > {0}",
            path.display()
        );
        std::fs::write(place.private(), "image").unwrap();
        // Not reachable by any substitution.
        let file = place.path("elsewhere/script");
        std::fs::write(&file, script).unwrap();
        let line = CommandLine::new(["/bin/sh".into(), file.into_os_string()]);
        let mut slot = place.slot(&plan(line), *way);
        assert!(slot.isolation().own_mounts);
        let verdict = slot.run().unwrap();
        assert!(is_success(&verdict), "{verdict:?}");
        assert_eq!(std::fs::read_to_string(place.private()).unwrap(), "done");
        assert_eq!(std::fs::read_to_string(place.original()).unwrap(), "pool");
        assert_eq!(mounts(), before);
    }
    assert_eq!(mounts(), before);
}

#[test]
fn paths_are_substituted_in_arguments_and_environment() {
    let place = Place::new();
    let mut plan = shell("");
    plan.recover = CommandLine::new([
        "/bin/sh".into(),
        "-c".into(),
        "test \"$(cat $1 $2 $3)\" = imageimageimage && test $(cat $POOL) = image".into(),
        "sh".into(),
        place.original().into_os_string(),
        "{pool}".into(),
        format!("{}", place.original().display()).into(),
    ]);
    plan.environment = vec![("POOL".into(), place.original().into())];
    for way in WAYS {
        let verdict = place.run(&plan, way);
        assert!(is_success(&verdict), "{way:?} {verdict:?}");
    }
}

/// Runs a script on its pool, and returns the content of the image after it.
fn handle(place: &Place, script: &str) -> Vec<String> {
    let mut results = Vec::new();
    for way in WAYS {
        std::fs::write(place.private(), "image").unwrap();
        let verdict = place.run(&shell(script), way);
        assert!(is_success(&verdict), "{way:?} {verdict:?}");
        assert_eq!(std::fs::read_to_string(place.original()).unwrap(), "pool");
        results.push(std::fs::read_to_string(place.private()).unwrap_or_default());
    }
    results
}

#[test]
fn a_pool_can_be_renamed_removed_and_made_again() {
    let place = Place::new();
    let renamed = handle(&place, "printf new > {pool}.tmp && mv {pool}.tmp {pool}");
    assert_eq!(renamed, ["new"; 4]);
    assert_eq!(handle(&place, "rm {pool}"), [""; 4]);
    assert_eq!(
        handle(&place, "rm {pool} && printf again > {pool}"),
        ["again"; 4]
    );
    assert_eq!(handle(&place, "mv {pool} {pool}.old"), [""; 4]);
    // The next recovery does not find files of this one.
    assert_eq!(handle(&place, "test ! -e {pool}.old"), ["image"; 4]);
    let left: Vec<_> = std::fs::read_dir(place.path("pools")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn other_files_of_the_directory_are_there() {
    let place = Place::new();
    let pools = place.path("pools");
    std::fs::write(pools.join("settings"), "set").unwrap();
    std::fs::create_dir(pools.join("sub")).unwrap();
    std::fs::write(pools.join("sub/deep"), "deep").unwrap();
    std::os::unix::fs::symlink("settings", pools.join("link")).unwrap();
    let script = format!(
        "cd {} && test $(cat settings)$(cat link)$(cat sub/deep)$(cat pool) = setsetdeepimage \
         && printf new > tmp && mv tmp pool && test ! -e private",
        pools.display()
    );
    for way in &WAYS[..2] {
        std::fs::write(place.private(), "image").unwrap();
        let mut slot = place.slot(&shell(&script), *way);
        for _ in 0..3 {
            std::fs::write(place.private(), "image").unwrap();
            let verdict = slot.run().unwrap();
            assert!(is_success(&verdict), "{verdict:?}");
            assert_eq!(std::fs::read_to_string(place.private()).unwrap(), "new");
        }
        drop(slot);
        assert_eq!(std::fs::read_dir(place.path("image")).unwrap().count(), 1);
    }
    assert_eq!(std::fs::read_to_string(place.original()).unwrap(), "pool");
    assert_eq!(std::fs::read_dir(&pools).unwrap().count(), 4);
}

#[test]
fn images_may_lie_beside_their_pool() {
    let place = Place::new();
    std::fs::write(place.path("pool"), "pool").unwrap();
    let mapping = PoolMapping {
        original: place.path("pool"),
        private: place.private(),
    };
    let script = format!(
        "test $(cat {0}) = image && printf new > {0}.tmp && mv {0}.tmp {0}",
        place.path("pool").display()
    );
    for way in &WAYS[..2] {
        let oracle = Oracle::new(shell(&script), settings(*way)).unwrap();
        let mut slot = oracle.slot(std::slice::from_ref(&mapping)).unwrap();
        for _ in 0..3 {
            std::fs::remove_file(place.private()).unwrap();
            std::fs::write(place.private(), "image").unwrap();
            let verdict = slot.run().unwrap();
            assert!(is_success(&verdict), "{verdict:?}");
            assert_eq!(std::fs::read_to_string(place.private()).unwrap(), "new");
        }
    }
    assert_eq!(std::fs::read_to_string(place.path("pool")).unwrap(), "pool");
}

#[test]
fn an_image_may_be_replaced_between_runs() {
    let place = Place::new();
    let script = "echo $(cat {pool}); exit 1";
    for way in WAYS {
        let mut slot = place.slot(&shell(script), way);
        std::fs::remove_file(place.private()).unwrap();
        std::fs::write(place.private(), "second").unwrap();
        assert_eq!(output(&failure(slot.run().unwrap())), "second\n");
        // Even with its directory.
        std::fs::rename(place.path("image"), place.path("old")).unwrap();
        std::fs::create_dir(place.path("image")).unwrap();
        std::fs::write(place.private(), "third").unwrap();
        assert_eq!(output(&failure(slot.run().unwrap())), "third\n");
        std::fs::remove_dir_all(place.path("old")).unwrap();
    }
}

#[test]
fn files_are_mounted_one_by_one_where_names_differ() {
    let place = Place::new();
    std::fs::write(place.path("elsewhere/0.image"), "other").unwrap();
    std::fs::write(place.path("elsewhere/unrelated"), "kept").unwrap();
    let mapping = PoolMapping {
        original: place.original(),
        private: place.path("elsewhere/0.image"),
    };
    let oracle = Oracle::new(
        shell("test $(cat {pool}) = other && printf done > {pool}"),
        settings(WAYS[0]),
    );
    let mut slot = oracle.unwrap().slot(&[mapping]).unwrap();
    let verdict = slot.run().unwrap();
    assert!(is_success(&verdict), "{verdict:?}");
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(place.path("elsewhere/0.image")), "done");
    assert_eq!(read(place.path("elsewhere/unrelated")), "kept");
    assert_eq!(read(place.original()), "pool");
    // A new file under the same name is seen.
    std::fs::remove_file(place.path("elsewhere/0.image")).unwrap();
    std::fs::write(place.path("elsewhere/0.image"), "other").unwrap();
    assert!(is_success(&slot.run().unwrap()));
}

#[test]
fn a_directory_that_is_gone_is_there_for_recovery_only() {
    let place = Place::new();
    std::fs::remove_dir_all(place.path("pools")).unwrap();
    let original = place.path("pools/of/old/pool");
    let mapping = PoolMapping {
        original: original.clone(),
        private: place.private(),
    };
    let before = mounts();
    for way in &WAYS[..2] {
        std::fs::write(place.private(), "image").unwrap();
        let script = format!(
            "test $(cat {0}) = image && printf new > {0}.tmp && mv {0}.tmp {0} && test -d {1}",
            original.display(),
            place.path("elsewhere").display()
        );
        let oracle = Oracle::new(shell(&script), settings(*way)).unwrap();
        let mut slot = oracle.slot(std::slice::from_ref(&mapping)).unwrap();
        let verdict = slot.run().unwrap();
        assert!(is_success(&verdict), "{verdict:?}");
        assert_eq!(std::fs::read_to_string(place.private()).unwrap(), "new");
        assert!(!place.path("pools").exists());
    }
    assert_eq!(mounts(), before);
}

#[test]
fn several_pools_in_several_directories() {
    let place = Place::new();
    let mut mappings = vec![place.mapping()];
    std::fs::create_dir_all(place.path("pools/deeper")).unwrap();
    std::fs::create_dir_all(place.path("image2")).unwrap();
    for (original, private, content) in [
        ("pools/second", "image/second", "two"),
        ("pools/deeper/third", "image2/third", "three"),
    ] {
        std::fs::write(place.path(original), "pool").unwrap();
        std::fs::write(place.path(private), content).unwrap();
        mappings.push(PoolMapping {
            original: place.path(original),
            private: place.path(private),
        });
    }
    let script = format!(
        "cd {} && test $(cat pool second deeper/third) = imagetwothree",
        place.path("pools").display()
    );
    let oracle = Oracle::new(shell(&script), settings(WAYS[0])).unwrap();
    let verdict = oracle.slot(&mappings).unwrap().run().unwrap();
    assert!(is_success(&verdict), "{verdict:?}");
}

#[test]
fn slots_in_parallel_do_not_meet() {
    let place = Place::new();
    let script = format!(
        "printf \"$(cat {{pool}})+\" > {0} && cat {0} && exit 1",
        place.original().display()
    );
    for way in WAYS {
        let oracle = Oracle::new(shell(&script), settings(way)).unwrap();
        let slots: Vec<(Slot, PathBuf)> = (0..8)
            .map(|number| {
                let directory = place.path(&format!("slot{number}"));
                std::fs::create_dir_all(&directory).unwrap();
                let private = directory.join("pool");
                std::fs::write(&private, "").unwrap();
                let mapping = PoolMapping {
                    original: place.original(),
                    private: private.clone(),
                };
                (oracle.slot(&[mapping]).unwrap(), private)
            })
            .collect();
        std::thread::scope(|scope| {
            for (number, (mut slot, private)) in slots.into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..10 {
                        std::fs::write(&private, format!("{number}.{round}")).unwrap();
                        let failed = failure(slot.run().unwrap());
                        assert_eq!(output(&failed), format!("{number}.{round}+"));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_to_string(place.original()).unwrap(), "pool");
    }
}

#[test]
fn what_cannot_be_covered_is_substituted_or_refused() {
    let place = Place::new();
    let mapping = PoolMapping {
        original: "/no-such-directory-at-the-root/pool".into(),
        private: place.private(),
    };
    let recover = shell("test $(cat {pool}) = image");
    let mut lenient = settings(WAYS[0]);
    lenient.paths = PathMode::Auto;
    let oracle = Oracle::new(recover.clone(), lenient).unwrap();
    for _ in 0..2 {
        let mut slot = oracle.slot(std::slice::from_ref(&mapping)).unwrap();
        assert!(!slot.isolation().own_mounts);
        assert!(is_success(&slot.run().unwrap()));
    }
    // It would open the pool of the user.
    let mut lenient = settings(WAYS[0]);
    lenient.paths = PathMode::Auto;
    let fixed = Oracle::new(shell("cat /some/pool"), lenient).unwrap();
    let refused = fixed.slot(std::slice::from_ref(&mapping)).unwrap_err();
    assert!(
        matches!(refused, OracleError::PoolNotNamed { .. }),
        "{refused}"
    );
    let strict = Oracle::new(recover, settings(WAYS[0])).unwrap();
    let refused = strict.slot(&[mapping]).unwrap_err().to_string();
    assert!(
        refused.contains("/no-such-directory-at-the-root"),
        "{refused}"
    );
}

#[test]
fn files_beside_the_pool_can_be_renamed_changed_and_removed() {
    let place = Place::new();
    let beside = |name: &str| place.path("pools").join(name);
    for (name, text) in [("pool.new", "next"), ("log", "lines"), ("config", "value")] {
        std::fs::write(beside(name), text).unwrap();
    }
    let directory = place.path("pools");
    let script = format!(
        "cd {} && test $(cat log) = lines && mv pool.new pool && rm log && echo more >> config \
         && mv config renamed",
        directory.display()
    );
    for way in &WAYS[..2] {
        let mut slot = place.slot(&shell(&script), *way);
        for _ in 0..2 {
            std::fs::write(place.private(), "image").unwrap();
            let verdict = slot.run().unwrap();
            assert!(is_success(&verdict), "{verdict:?}");
            assert_eq!(std::fs::read_to_string(place.private()).unwrap(), "next");
        }
        drop(slot);
        assert_eq!(std::fs::read_dir(place.path("image")).unwrap().count(), 1);
    }
    let read = |name: &str| std::fs::read_to_string(beside(name)).unwrap();
    assert_eq!(
        [read("pool.new"), read("log"), read("config")],
        ["next", "lines", "value"]
    );
    assert_eq!(read("pool"), "pool");
}

#[test]
fn a_relative_path_is_replaced_where_nothing_is_mounted() {
    let place = Place::new();
    let mut plan = shell("test $(cat pools/pool) = image && printf done > ./pools/pool");
    plan.working_directory = Some(place.directory.path().into());
    for way in &WAYS[2..] {
        std::fs::write(place.private(), "image").unwrap();
        let verdict = place.run(&plan, *way);
        assert!(is_success(&verdict), "{verdict:?}");
        assert_eq!(std::fs::read_to_string(place.private()).unwrap(), "done");
        assert_eq!(std::fs::read_to_string(place.original()).unwrap(), "pool");
    }
}
