pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositories {
        mavenLocal() // until the SDK is published
        google()
        mavenCentral()
    }
}

rootProject.name = "farhand-android"
