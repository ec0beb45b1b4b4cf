//! Store URIs are read and printed as documented.

use super::*;
use proptest::prelude::*;

fn parse(uri: &str) -> Result<StoreSpec, String> {
    uri.parse::<StoreSpec>().map_err(|error| error.to_string())
}

#[test]
fn a_pool_is_read_and_printed() {
    let text = "pool:a:1,[::1]:2,b:3?copies=3&least=2&size=1G&timeout=0.5&domain=x,y,z&rebuild=1M";
    let StoreSpec::Pool(pool) = parse(text).unwrap() else { panic!("no pool") };
    assert_eq!(pool.redundancy, Redundancy::Copies { copies: 3, least: 2 });
    assert_eq!(pool.domain_numbers(), [0, 1, 2]);
    assert_eq!(pool.listed().iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "[::1]:2", "b:3"]);
    assert_eq!(parse(&pool.to_string()), Ok(StoreSpec::Pool(pool.clone())));
    for (text, printed) in [
        ("pool:a,b", "pool:a:10809,b:10809"),
        // Said, it stays: where nobody says it, donors may be asked to code pages.
        ("pool:a:1,a:2?domain=each&copies=2", "pool:a:1,a:2?copies=2&domain=each"),
        ("pool:a:1,b:1?copies=1&reconnect=10", "pool:a:1,b:1?copies=1"),
        ("pool:a:1,b:1,c:1?parity=1&data=2", "pool:a:1,b:1,c:1?data=2&parity=1"),
        ("pool:a:1,b:1,c:1,d:1,e:1,f:1?data=4", "pool:a:1,b:1,c:1,d:1,e:1,f:1?data=4&parity=2"),
        ("pool:a:1,b:1?plain&least=2", "pool:a:1,b:1?copies=2&least=2&plain"),
        ("pool:a:1?data=1&parity=0", "pool:a:1?copies=1"),
        ("pool:a:1,b:1?claim=take&copies=2", "pool:a:1,b:1?copies=2&claim=take"),
        ("pool:a:1,b:1?copies=2&claim=free", "pool:a:1,b:1?copies=2"),
        ("pool:a:1,b:1?data=1", "pool:a:1,b:1?copies=2"),
        ("pool:a:1,b:1,c:1?data=1&parity=2", "pool:a:1,b:1,c:1?copies=3"),
        ("pool:a:1,b:1?tls-hostname=x&tls-certificates=c", "pool:a:1,b:1?tls-certificates=c&tls-hostname=x"),
    ] {
        assert_eq!(parse(text).unwrap().to_string(), printed);
    }
}

#[test]
fn a_last_resort_is_read_and_printed() {
    let text = "pool:a:1,b:1?spill=file:/var/a%20b&spill-size=3G&plain";
    let StoreSpec::Pool(pool) = parse(text).unwrap() else { panic!("no pool") };
    let spill = pool.spill.clone().unwrap();
    assert_eq!((spill.path.to_str(), spill.size.map(Size::bytes)), (Some("/var/a b"), Some(3 << 30)));
    assert_eq!(pool.to_string(), text);
    assert_eq!(parse(&pool.to_string()), Ok(StoreSpec::Pool(pool)));
    assert_eq!(parse("pool:a:1,b:1?spill=file:x").unwrap().to_string(), "pool:a:1,b:1?spill=file:x");
    let coded = "pool:a:1,b:1,c:1?data=2&parity=1&spill=file:x";
    assert_eq!(parse(coded).unwrap().to_string(), coded);
    for (text, reason) in [
        ("pool:a,b?spill=ram:", "'ram:' is no file of this machine"),
        ("pool:a,b?spill=file:", "is missing"),
        ("pool:a,b?spill-size=1G", "name it by spill=file:PATH"),
        ("pool:a,b?spill=file:x&spill-size=0", "does not hold a page"),
        ("pool:a,b,c?data=2&parity=1&spill-size=1G", "name it by spill=file:PATH"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_pool_in_etcd_is_read_and_printed() {
    let text = "pool:etcd://[::1]:2379,b:7/lab.1?copies=3&size=1G";
    let StoreSpec::Pool(pool) = parse(text).unwrap() else { panic!("no pool") };
    let Members::Etcd(etcd) = &pool.members else { panic!("no etcd") };
    assert_eq!((etcd.name.as_str(), etcd.servers.len(), pool.redundancy.width()), ("lab.1", 2, 3));
    assert_eq!(pool.to_string(), text);
    assert_eq!(etcd.to_string().parse(), Ok(etcd.clone()));
    assert_eq!(parse("pool:etcd://a/x").unwrap().to_string(), "pool:etcd://a:2379/x");
    for (text, shown) in [
        ("pool:etcds://a:2379/x?tls-certificates=t", "t"),
        ("pool:etcds://a:2379/x?etcd-certificates=e&tls-certificates=t", "e"),
        ("pool:etcds://a:2379/x?etcd-certificates=e&plain", "e"),
    ] {
        let Ok(StoreSpec::Pool(pool)) = parse(text) else { panic!("no pool: {text}") };
        let Members::Etcd(etcd) = &pool.members else { panic!("no etcd") };
        assert_eq!(etcd.certificates(), Some(std::path::Path::new(shown)), "{text}");
        assert_eq!((etcd.to_string().as_str(), pool.to_string().as_str()), ("etcds://a:2379/x", text));
    }
    for (text, reason) in [
        ("pool:etcd://a:2379", "name is missing"),
        ("pool:etcd://a:2379/", "no name of a pool"),
        ("pool:etcd://a:2379/a/b", "no name of a pool"),
        ("pool:etcd:///x", "names no host"),
        ("pool:etcd://a:0/x", "not a port"),
        ("pool:etcd://a/x?domain=host", "spillway donor --domain"),
        ("pool:etcds://a/x", "no certificates are named"),
        ("pool:etcds://a/x?plain", "no certificates are named"),
        ("pool:etcds://a/x?etcd-certificates=", "etcd-certificates"),
        ("pool:etcd://a/x?etcd-certificates=e", "is for etcds:"),
        ("pool:a,b?etcd-certificates=e", "named in etcd"),
        ("pool:a,b?claim=none", "'none' is none of a pool's"),
        ("pool:etcd://a/x?claim=take", "which are listed"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn every_scheme_is_understood() {
    let patience = Patience::default();
    let gib = Size::from_bytes(1 << 30);
    for (uri, spec) in [
        ("compressed:", StoreSpec::Compressed { size: None }),
        ("ram:?size=1G", StoreSpec::Ram { size: Some(gib), fabric: None }),
        ("ram:?fabric=fdr", StoreSpec::Ram { size: None, fabric: Some(Fabric::Fdr) }),
        ("file:/a%3Fb?size=1GiB", StoreSpec::File { path: "/a?b".into(), size: gib }),
        (
            "nbd://[::1]:7000/a/b%20c?timeout=1.5",
            StoreSpec::Nbd {
                host: "::1".into(),
                port: 7000,
                export: "a/b c".into(),
                size: None,
                patience: Patience { timeout: Duration::from_millis(1500), ..patience },
                claim: Claim::Free,
                transport: Transport::Unsaid,
            },
        ),
        (
            "nbd://donor?size=1G&claim=take",
            StoreSpec::Nbd {
                host: "donor".into(),
                port: 10809,
                export: String::new(),
                size: Some(gib),
                patience,
                claim: Claim::Take,
                transport: Transport::Unsaid,
            },
        ),
        (
            "nbd://donor/?plain",
            StoreSpec::Nbd {
                host: "donor".into(),
                port: 10809,
                export: String::new(),
                size: None,
                patience,
                claim: Claim::Free,
                transport: Transport::Plain,
            },
        ),
        (
            "nbds://10.0.0.2/e?tls-certificates=/a%20b&tls-hostname=lab&timeout=2",
            StoreSpec::Nbd {
                host: "10.0.0.2".into(),
                port: 10809,
                export: "e".into(),
                size: None,
                patience: Patience { timeout: Duration::from_secs(2), ..patience },
                claim: Claim::Free,
                transport: Transport::Tls(Tls { certificates: "/a b".into(), hostname: Some("lab".into()) }),
            },
        ),
        (
            "nbd+unix:///x?socket=/run/a%20b&reconnect=0",
            StoreSpec::NbdUnix {
                socket: "/run/a b".into(),
                export: "x".into(),
                size: None,
                patience: Patience { reconnect: Duration::ZERO, ..patience },
                claim: Claim::Free,
            },
        ),
        ("shm:near", StoreSpec::Shm { name: "near".into(), size: None, patience, fabric: None }),
        (
            "shm:near?fabric=fdr&size=1G",
            StoreSpec::Shm { name: "near".into(), size: Some(gib), patience, fabric: Some(Fabric::Fdr) },
        ),
    ] {
        assert_eq!(parse(uri), Ok(spec), "{uri}");
    }
}

#[test]
fn errors_name_uri_reason_and_remedy() {
    for (uri, reason, remedy) in [
        ("", "is not a store", "write compressed:"),
        ("/tmp/file", "is not a store", "write compressed:"),
        ("zram:", "is not a store", "write compressed:"),
        ("compressed:1G", "'1G' does not belong there", "compressed:?size=SIZE"),
        ("ram:?size=0", "does not hold a page", "give it more"),
        ("ram:?size=lots", "'lots' is not a size", "such as 64K"),
        ("ram:?size=16P", "more than one store can hold", "at most 15T"),
        ("ram:?colour=red", "no parameter 'colour'", "it takes size and fabric"),
        ("ram:?size=1M&size=2M", "given twice", "give it once"),
        ("ram:?fabric=token-ring", "no network 'token-ring'", "there is fdr"),
        ("file:/x", "the size is missing", "file:PATH?size=SIZE"),
        ("file:?size=1M", "the path is missing", "file:PATH?size=SIZE"),
        ("file:/a%00?size=1M", "a zero byte", "file:PATH?size=SIZE"),
        ("nbd:host", "'//' is missing", "nbd://HOST:PORT/EXPORT"),
        ("nbd://", "names no host", "nbd://HOST:PORT/EXPORT"),
        ("nbd://::1/x", "names no host", "nbd://HOST:PORT/EXPORT"),
        ("nbd://host:0/x", "'0' is not a port", "from 1 to 65535"),
        ("nbd://host:99999/x", "'99999' is not a port", "from 1 to 65535"),
        ("nbd://host/%ff", "not UTF-8", "nbd://HOST:PORT/EXPORT"),
        ("nbd://host/x?timeout=0", "give up at once", "0.001"),
        ("nbd://host/x?reconnect=soon", "'soon' is not a number of seconds", "from 0 to 86400"),
        ("nbd://host/x?claim=mine", "'mine' is none", "write free, take or none"),
        ("nbd://host/x?plain=yes", "takes no value", "write ?plain"),
        ("nbd://host/x?tls-certificates=/c", "is for nbds://", "write that"),
        ("nbds://host/x", "the directory of certificates is missing", "?tls-certificates=DIR"),
        ("nbds://host/x?plain", "is for nbd://", "leave it out"),
        ("nbds://host/x?plain&tls-certificates=/c", "the opposite of TLS", "one of the two"),
        ("nbds://host/x?tls-hostname=a", "is for TLS", "write tls-certificates=DIR too"),
        ("nbds://host/x?tls-certificates=", "is missing", "?tls-certificates=DIR"),
        ("nbds://host/x?tls-certificates=/c&tls-hostname=", "is empty", "leave it out"),
        ("pool:a:1,b:1?plain&tls-certificates=/c", "the opposite of TLS", "one of the two"),
        ("nbd+unix:///x", "the socket's path is missing", "nbd+unix:///EXPORT?socket=PATH"),
        ("nbd+unix://host/x?socket=/s", "makes no sense", "nbd+unix:///EXPORT?socket=PATH"),
        ("shm:", "1 to 200 bytes", "spillway donor --shm NAME"),
        ("shm:a/b", "no '/'", "spillway donor --shm NAME"),
    ] {
        let error = parse(uri).expect_err(uri);
        for part in [&format!("'{uri}'"), reason, remedy] {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }
}

#[test]
fn travels_as_a_string() {
    let spec: StoreSpec = "file:/far?size=3M".parse().unwrap();
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(json, r#""file:/far?size=3M""#);
    assert_eq!(serde_json::from_str::<StoreSpec>(&json).unwrap(), spec);
    assert!(serde_json::from_str::<StoreSpec>(r#""file:/far""#).is_err());
}

fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![4096..=MAX_SIZE.bytes(), (12u32..43).prop_map(|shift| 1 << shift)].prop_map(Size::from_bytes)
}

fn patiences() -> impl Strategy<Value = Patience> {
    (1u64..=86_400_000, 0u64..=86_400_000).prop_map(|(timeout_ms, reconnect_ms)| Patience {
        timeout: Duration::from_millis(timeout_ms),
        reconnect: Duration::from_millis(reconnect_ms),
    })
}

fn fabrics() -> impl Strategy<Value = Option<Fabric>> {
    prop::option::of(Just(Fabric::Fdr))
}

fn claims() -> impl Strategy<Value = Claim> {
    prop_oneof![Just(Claim::Free), Just(Claim::Take), Just(Claim::None)]
}

fn transports() -> impl Strategy<Value = Transport> {
    let tls = (paths(), prop::option::of("[a-z.&=%]{1,20}"));
    prop_oneof![
        Just(Transport::Unsaid),
        Just(Transport::Plain),
        tls.prop_map(|(certificates, hostname)| Transport::Tls(Tls { certificates, hostname })),
    ]
}

fn paths() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(1..=255u8, 1..40).prop_map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

fn specs() -> impl Strategy<Value = StoreSpec> {
    let host = prop_oneof!["[a-z0-9.-]{1,20}", Just("fe80::1".to_owned())];
    prop_oneof![
        prop::option::of(sizes()).prop_map(|size| StoreSpec::Compressed { size }),
        (prop::option::of(sizes()), fabrics()).prop_map(|(size, fabric)| StoreSpec::Ram { size, fabric }),
        (paths(), sizes()).prop_map(|(path, size)| StoreSpec::File { path, size }),
        (host, 1..=u16::MAX, "\\PC{0,20}", prop::option::of(sizes()), patiences(), claims(), transports())
            .prop_map(|(host, port, export, size, patience, claim, transport)| StoreSpec::Nbd {
                host,
                port,
                export,
                size,
                patience,
                claim,
                transport
            }),
        (paths(), "\\PC{0,20}", prop::option::of(sizes()), patiences(), claims()).prop_map(
            |(socket, export, size, patience, claim)| StoreSpec::NbdUnix {
                socket,
                export,
                size,
                patience,
                claim
            }
        ),
        ("[^/\\x00]{1,20}", prop::option::of(sizes()), patiences(), fabrics())
            .prop_map(|(name, size, patience, fabric)| StoreSpec::Shm { name, size, patience, fabric }),
    ]
}

proptest! {
    #[test]
    fn display_gives_the_uri_back(spec in specs()) {
        prop_assert_eq!(spec.to_string().parse::<StoreSpec>(), Ok(spec));
    }

    #[test]
    fn nothing_panics(uri in "(compressed|ram|file|nbds?|nbd\\+unix|shm)?:?\\PC{0,40}") {
        if let Ok(spec) = uri.parse::<StoreSpec>() {
            prop_assert_eq!(spec.to_string().parse::<StoreSpec>(), Ok(spec));
        }
    }
}
