// swift-tools-version: 6.2
import Foundation
import PackageDescription

/// The libraries for all programs, Reactive and ReactiveFoundation: no warnings, and every use of what the compiler cannot
/// check is marked `unsafe`, or `@safe` at a declaration that gives the reason. No unsafe flags: in a program's release
/// build exclusive access is checked in them as in the program itself.
let librarySettings: [SwiftSetting] = [.treatAllWarnings(as: .error), .strictMemorySafety()]

/// Tests: no warnings, and one optimisation across all modules for release, so that a generic is specialised where it is
/// used. Exclusive access is checked in debug builds, which the tests are. From tools version 6.2 on SwiftPM accepts such
/// flags in a package that another one depends on by version.
let settings: [SwiftSetting] = [
  .treatAllWarnings(as: .error),
  .unsafeFlags(["-cross-module-optimization", "-enforce-exclusivity=unchecked"], .when(configuration: .release)),
]

/// All other modules and programs: as tests, and marked as the libraries are.
let strictSettings = settings + [.strictMemorySafety()]

/// The daemon's own module, which connects the others: they process the events. Optimised for size, which takes a third less
/// time to compile; no module imports it.
let daemonSettings: [SwiftSetting] = [
  .treatAllWarnings(as: .error), .strictMemorySafety(),
  .unsafeFlags(["-Osize", "-enforce-exclusivity=unchecked"], .when(configuration: .release)),
]

/// A fleet's machines and their simulations, which compute for minutes without optimisation: optimised in debug builds, too,
/// with all assertions.
let optimised: [SwiftSetting] = [
  .unsafeFlags(["-O", "-assert-config", "Debug"], .when(configuration: .debug))
]

/// The modules in which the simulation and the containers' programs spend their time: in the gate, whose debug build these
/// are made of (`STREAMD_OPTIMISED`, Tests/build-checked), as well.
let optimisedInGate = Context.environment["STREAMD_OPTIMISED"] != nil ? optimised : []

/// The targets of `Tests/Fuzz/run`: a folder each, with a corpus.
let fuzzTargets = [
  "EventFilters", "EventSplitters", "Fleet", "FleetHosts", "HTTP", "JQ", "JetStream", "LogRecovery", "NATS",
  "Patterns", "PeerSource", "RSocket", "Serving", "SharedRegion", "StateRecovery", "Templates", "WebSocketSource",
]

let package = Package(
  name: "streamd",
  products: [
    .library(name: "Reactive", targets: ["Reactive"]),
    .library(name: "ReactiveFoundation", targets: ["ReactiveFoundation"]),
    .library(name: "StreamSources", targets: ["StreamSources", "Events"]),
    .library(name: "StreamServer", targets: ["StreamServer", "Events"]),
    .library(name: "StreamClient", targets: ["StreamClient"]),
    .executable(name: "streamd", targets: ["streamd"]),
    .executable(name: "streamctl", targets: ["streamctl"]),
    // Internal modules, for the package in Benchmarks/ only.
    .library(name: "_CLinux", targets: ["CLinux"]),
    .library(name: "_HTTP", targets: ["HTTP"]),
    .library(name: "_RSocket", targets: ["RSocket"]),
    .library(name: "_StreamRuntime", targets: ["StreamRuntime"]),
  ],
  targets: [
    // C and C++ libraries, each behind one small module.
    .systemLibrary(name: "CLinux", path: "Sources/C/CLinux"),
    .systemLibrary(
      name: "CCurl", path: "Sources/C/CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(name: "CJq", path: "Sources/C/CJq", providers: [.apt(["libjq-dev"])]),
    .systemLibrary(
      name: "CSystemd", path: "Sources/C/CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
    .systemLibrary(name: "CTLS", path: "Sources/C/CTLS", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CZlib", path: "Sources/C/CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
    .target(name: "CChecksum", path: "Sources/C/CChecksum"),
    .target(
      name: "CPage", path: "Sources/C/CPage",
      exclude: ["page.html", "page.css", "table.js", "connection.js", "clients.js", "panel.js"]),
    // libstreamd compiles the same file.
    .target(name: "CRegion", path: "Sources/C/CRegion", cSettings: [.define("_GNU_SOURCE")]),
    .target(name: "CToml", path: "Sources/C/CToml"),
    .target(
      name: "CVersion", path: "Sources/C/CVersion",
      cSettings: Context.environment["STREAMD_COMMIT"].map { [.define("STREAMD_COMMIT", to: "\"\($0)\"")] } ?? []),

    // A target depends only on targets above it, or on those of Sources/C.
    .target(name: "Events", swiftSettings: strictSettings + optimised),
    .target(name: "Locks", swiftSettings: librarySettings + optimisedInGate),
    .target(name: "StreamRuntime", dependencies: ["CLinux", "Locks"], swiftSettings: strictSettings + optimisedInGate),
    .target(name: "Reactive", dependencies: ["Locks"], swiftSettings: librarySettings + optimisedInGate),
    .target(name: "ReactiveFoundation", dependencies: ["Locks", "Reactive"], swiftSettings: librarySettings),
    .target(name: "RSocket", swiftSettings: strictSettings),
    .target(name: "HTTP", dependencies: ["Events"], swiftSettings: strictSettings),
    .target(name: "StreamProtocol", dependencies: ["CVersion", "Events"], swiftSettings: strictSettings),
    .target(name: "TaggedFields", swiftSettings: strictSettings + optimised),
    .target(
      name: "Fleet", dependencies: ["CChecksum", "Events", "TaggedFields"], swiftSettings: strictSettings + optimised),
    .target(
      name: "JetStream", dependencies: ["CTLS", "Events", "Fleet", "StreamRuntime"], swiftSettings: strictSettings),
    .target(
      name: "ReplayLog", dependencies: ["CChecksum", "CLinux", "Events", "Reactive", "StreamRuntime"],
      swiftSettings: strictSettings + optimisedInGate),
    .target(name: "MappedLog", dependencies: ["CLinux", "CRegion", "StreamRuntime"], swiftSettings: strictSettings),
    .target(
      name: "StreamSources",
      dependencies: [
        "CCurl", "CJq", "CSystemd", "CZlib", "Events", "HTTP", "RSocket", "Reactive", "StreamProtocol", "StreamRuntime",
      ],
      swiftSettings: strictSettings),
    .target(
      name: "StreamServer",
      dependencies: [
        "CChecksum", "CLinux", "CPage", "Events", "HTTP", "MappedLog", "RSocket", "Reactive", "ReplayLog",
        "TaggedFields", "StreamProtocol", "StreamRuntime",
      ],
      swiftSettings: strictSettings + optimisedInGate),
    .target(
      name: "StreamClient",
      dependencies: ["CLinux", "MappedLog", "RSocket", "Reactive", "StreamProtocol", "StreamRuntime"],
      swiftSettings: strictSettings),
    .target(name: "Systemd", dependencies: ["CLinux", "CSystemd", "StreamRuntime"], swiftSettings: strictSettings),
    .executableTarget(
      name: "streamd",
      dependencies: [
        "CLinux", "CToml", "Events", "Fleet", "HTTP", "JetStream", "MappedLog", "Reactive", "ReplayLog",
        "StreamProtocol", "StreamRuntime", "StreamServer",
        "StreamSources", "Systemd",
      ],
      swiftSettings: daemonSettings),
    .executableTarget(
      name: "example", dependencies: ["Reactive", "StreamClient", "StreamServer"], swiftSettings: strictSettings),
    .executableTarget(
      name: "streamctl", dependencies: ["Events", "Reactive", "StreamClient", "StreamProtocol", "StreamRuntime"],
      swiftSettings: strictSettings),

    .target(
      name: "TestSupport", dependencies: ["CLinux", "Reactive", "StreamRuntime"], path: "Tests/TestSupport",
      exclude: ["Server", "Upstreams"],
      swiftSettings: settings),
    .testTarget(
      name: "StreamRuntimeTests", dependencies: ["CLinux", "StreamRuntime", "TestSupport"], swiftSettings: settings),
    .testTarget(name: "ReactiveTests", dependencies: ["Locks", "Reactive"], swiftSettings: settings),
    .target(name: "CAllocationCounter", path: "Tests/Allocations/Counter"),
    .executableTarget(
      name: "allocations", dependencies: ["CAllocationCounter", "Reactive"], path: "Tests/Allocations/Check",
      swiftSettings: settings),
    .testTarget(name: "ReactiveFoundationTests", dependencies: ["ReactiveFoundation"], swiftSettings: settings),
    .testTarget(
      name: "RSocketTests", dependencies: ["RSocket"], swiftSettings: settings),
    .testTarget(name: "HTTPTests", dependencies: ["HTTP"], swiftSettings: settings),
    .executableTarget(
      name: "requestreader", dependencies: ["HTTP"], path: "Tests/InteroperabilityTests/RequestReader",
      swiftSettings: settings),
    .target(name: "CReasons", path: "Tests/Reasons"),
    .testTarget(name: "StreamProtocolTests", dependencies: ["CReasons", "StreamProtocol"], swiftSettings: settings),
    .testTarget(
      name: "FleetTests", dependencies: ["CLinux", "Events", "Fleet", "TaggedFields", "TestSupport"],
      swiftSettings: settings + optimised),
    .testTarget(
      name: "JetStreamTests", dependencies: ["Fleet", "JetStream", "StreamRuntime", "TestSupport"],
      exclude: ["Fixtures"],
      swiftSettings: settings),
    .testTarget(name: "EventsTests", dependencies: ["Events"], swiftSettings: settings),
    .executableTarget(
      name: "logwriter", dependencies: ["Events", "ReplayLog"], path: "Tests/LogWriter", swiftSettings: settings),
    .testTarget(
      name: "ReplayLogTests",
      dependencies: ["CChecksum", "Events", "Reactive", "ReplayLog", "StreamRuntime", "TestSupport", "logwriter"],
      exclude: ["Fixtures"],
      swiftSettings: settings),
    .target(name: "CMapLayout", path: "Tests/MapLayout"),
    .testTarget(
      name: "MappedLogTests", dependencies: ["CLinux", "CMapLayout", "MappedLog", "StreamRuntime", "TestSupport"],
      swiftSettings: settings),
    .testTarget(
      name: "StreamSourcesTests",
      dependencies: [
        "ClientTestSupport", "Events", "HTTP", "RSocket", "Reactive", "StreamProtocol", "StreamRuntime",
        "StreamSources", "TestSupport", "streamd",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "StreamServerTests",
      dependencies: [
        "CLinux", "Events", "HTTP", "MappedLog", "RSocket", "Reactive", "ReplayLog", "TaggedFields", "StreamProtocol",
        "StreamRuntime", "StreamServer", "TestSupport",
      ],
      exclude: ["Fixtures"],
      swiftSettings: settings),
    .executableTarget(
      name: "conformancedriver", dependencies: ["Reactive", "StreamClient"], path: "Tests/Conformance/Driver",
      swiftSettings: settings),
    .target(
      name: "ClientTestSupport", dependencies: ["RSocket", "Reactive", "StreamClient", "StreamRuntime", "TestSupport"],
      path: "Tests/ClientTestSupport", swiftSettings: settings),
    .testTarget(
      name: "StreamClientTests",
      dependencies: [
        "ClientTestSupport", "Events", "RSocket", "Reactive", "ReplayLog", "StreamClient", "StreamRuntime",
        "StreamServer", "TestSupport", "example",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "streamctlTests",
      dependencies: [
        "ClientTestSupport", "RSocket", "Reactive", "StreamClient", "StreamProtocol", "StreamRuntime", "StreamServer",
        "TestSupport", "streamctl",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "FuzzTests",
      dependencies: [
        "CChecksum", "Events", "Fleet", "HTTP", "JetStream", "RSocket", "Reactive", "ReplayLog", "TaggedFields",
        "StreamProtocol", "StreamRuntime", "StreamServer", "StreamSources",
      ],
      path: "Tests/Fuzz", exclude: ["run"] + fuzzTargets.map { "\($0)/Corpus" }, swiftSettings: settings),
    .testTarget(name: "SystemdTests", dependencies: ["Systemd", "TestSupport"], swiftSettings: settings),
    .testTarget(
      name: "streamdTests",
      dependencies: [
        "Events", "Fleet", "RSocket", "Reactive", "ReplayLog", "StreamClient", "StreamProtocol", "StreamRuntime",
        "StreamServer",
        "StreamSources", "TaggedFields", "TestSupport", "streamd",
      ],
      exclude: ["Fixtures"],
      swiftSettings: settings),
  ],
  swiftLanguageModes: [.v6],
  cxxLanguageStandard: .cxx17
)

/// The suites whose tests use several threads, by target: `deploy/test` runs these under the thread sanitizer, `deploy/test
/// --all` every test.
let threadTests = [
  "MappedLogTests": ["ConcurrentReaderTests"],
  "ReactiveTests": [
    "AsyncElementsTests", "AsyncPublisherTests", "ConcurrencyTests", "ContractTests", "ContractTests+Combine",
    "ShareTests", "SharedSequenceRaceTests", "SharedSequenceTests",
  ],
  "StreamClientTests": ["RemoteSinkTests", "RemoteStreamTests"],
  "StreamRuntimeTests": ["EventLoopTests"],
  "StreamServerTests": ["HandoverTests", "PublishingTests", "SystemStreamTests"],
  "StreamSourcesTests": ["PipelineTests"],
]

/// The gate builds it for release alone, in a step of its own.
if Context.environment["STREAMD_OPTIMISED"] != nil { package.targets.removeAll { $0.name == "allocations" } }

/// Builds of a part of the tests: `STREAMD_TESTS` has the names of their targets, separated by `|`, or is `threads`; if it is
/// empty, the package has the products alone.
if let chosen = Context.environment["STREAMD_TESTS"] {
  let names = chosen == "threads" ? Array(threadTests.keys) : chosen.split(separator: "|").map(String.init)
  package.targets.removeAll {
    $0.type == .test && !names.contains($0.name) || chosen.isEmpty && $0.path?.hasPrefix("Tests/") == true
  }
  for target in package.targets where target.type == .test && chosen == "threads" {
    let folder = "\(Context.packageDirectory)/\(target.path ?? "Tests/\(target.name)")"
    let suites = try FileManager.default.contentsOfDirectory(atPath: folder).filter { $0.contains("Tests") }
    target.exclude += suites.filter { !threadTests[target.name]!.contains(String($0.dropLast(".swift".count))) }
  }
}
