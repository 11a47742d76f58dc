// swift-tools-version: 6.2
import PackageDescription

/// Programs written for Combine. Only an import is changed, in either language mode. Built and run by deploy/test; each
/// traps if something differs from Combine.
let package = Package(
  name: "CombineUsers",
  dependencies: [.package(name: "streamd", path: "../..")],
  targets: [
    .executableTarget(
      name: "Five", dependencies: [.product(name: "ReactiveFoundation", package: "streamd")],
      swiftSettings: [.swiftLanguageMode(.v5)]),
    .executableTarget(
      name: "Six", dependencies: [.product(name: "Reactive", package: "streamd")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
    .executableTarget(
      name: "Fetching",
      dependencies: [
        .product(name: "Reactive", package: "streamd"), .product(name: "StreamSources", package: "streamd"),
      ],
      swiftSettings: [.swiftLanguageMode(.v6)]),
  ]
)
